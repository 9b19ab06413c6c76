#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/optim/sgd.h>

#include "framework/collectives/axis_index.h"
#include "framework/telemetry/digest.h"
#include "framework/training/block.h"
#include "framework/training/data_parallel.h"
#include "framework/training/sharded_optimizer.h"
#include "tests/catch.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

// Parameters whose elements lie in another order than their shape's, such as channels_last weights,
// keep it. All else is as it is for others, to the bit.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

enum class Order { of_shape, channels_last };

// Computes element by element, so that the order of elements changes no bit.
class Filters : public Block {
 public:
  explicit Filters(Order order) {
    const at::Tensor values = at::arange(4 * 3 * 5 * 2).to(at::kFloat).div(7).view({4, 3, 5, 2});
    weight = register_parameter("weight", order == Order::channels_last
                                              ? values.contiguous(at::MemoryFormat::ChannelsLast)
                                              : values);
    if (order == Order::channels_last) expect(is_in_order(), "the test's own order");
  }
  at::Tensor forward(const at::Tensor& factor) override { return (weight * factor).pow(2).sum(); }
  [[nodiscard]] bool is_in_order() const {
    return weight.is_contiguous(at::MemoryFormat::ChannelsLast);
  }
  at::Tensor weight;
};

class FilterNet : public torch::nn::Module {
 public:
  explicit FilterNet(Order order)
      : first(register_module("first", std::make_shared<Filters>(order))),
        second(register_module("second", std::make_shared<Filters>(order))) {}
  at::Tensor loss(double factor) {
    const at::Tensor own = at::full({}, factor + static_cast<double>(axis_index("data")));
    return (*first)(own) + (*second)(own * 0.5) + scale.sum() * factor;
  }
  [[nodiscard]] bool is_in_order() const { return first->is_in_order() && second->is_in_order(); }

  std::shared_ptr<Filters> first, second;
  at::Tensor scale = register_parameter("scale", at::full({3}, 2.0));
};

}  // namespace

TEST_CASE("channels_last weights keep their order, and train to the bits of others") {
  in_every_placement(3, [] {
    for (const int stage : {0, 1, 2, 3}) {
      ZeroOptions options = adam(stage);
      options.ema_decay = 0.5;
      FilterNet plain(Order::of_shape);
      FilterNet net(Order::channels_last);
      {
        ZeroTrainer reference(plain, options);
        ZeroTrainer trainer(net, options);
        const auto step = [&](double factor) {
          reference.backward(plain.loss(factor));
          trainer.backward(net.loss(factor));
          (void)reference.step(kRate);
          (void)trainer.step(kRate);
        };
        const auto expect_same = [&](const std::string& when) {
          const auto whole = trainer.whole_parameters();
          const auto other = reference.whole_parameters();
          expect(net.is_in_order(), "another order " + when);
          expect(first_difference(copies(net), copies(plain)).empty(), "other bits " + when);
          expect(parameters_sha256(copies(net)) == parameters_sha256(copies(plain)), "digest");
        };
        const at::Tensor alias = net.first->weight.detach();
        step(1);
        step(2);
        expect_same("after two steps");
        if (!net.first->weight.is_meta()) {
          expect(alias.equal(net.first->weight.detach()), "what shares its memory was left behind");
        }
        expect_same_pieces(state_pieces(trainer), state_pieces(reference));
        for (auto* const each : {&reference, &trainer}) {
          FilterNet& its = each == &trainer ? net : plain;
          each->edit_parameters([&] { its.second->weight.mul_(0.5); });
        }
        step(1);
        expect_same("after an edit");
        if (stage < 3) {
          const at::Tensor given = at::full({4, 3, 5, 2}, 0.25);
          net.first->weight.set_data(given);
          plain.first->weight.set_data(given.clone());
          step(1);
          expect_same("after values in another order have replaced them");
          expect(given.equal(at::full({4, 3, 5, 2}, 0.25)), "what was given was written");
        }
        {
          const auto averages = trainer.averaged_parameters();
          expect(net.is_in_order(), "averages in another order");
        }
        expect_same("after a look at averages");
        trainer.release_parameters();
        reference.release_parameters();
      }
      expect(net.is_in_order(), "another order at the end");
      expect(first_difference(copies(net), copies(plain)).empty(), "other bits at the end");
    }
  });
}

TEST_CASE("channels_last weights keep their order with optimizers of LibTorch's, in shards too") {
  in_every_placement(3, [] {
    for (const bool sharded : {false, true}) {
      FilterNet plain(Order::of_shape);
      FilterNet net(Order::channels_last);
      const auto make = [](std::vector<at::Tensor> own) {
        return std::make_unique<torch::optim::SGD>(std::move(own),
                                                   torch::optim::SGDOptions(0.01).momentum(0.9));
      };
      std::vector<std::unique_ptr<ShardedOptimizer>> shards;
      for (FilterNet* const each : {&plain, &net}) {
        DataParallel parallel(*each, "data");
        std::unique_ptr<torch::optim::Optimizer> whole;
        if (sharded) {
          shards.push_back(std::make_unique<ShardedOptimizer>(*each, make));
        } else {
          whole = make(each->parameters());
        }
        for (int step = 1; step <= 3; ++step) {
          clear_gradients(*each);
          parallel.backward(each->loss(step));
          sharded ? shards.back()->step() : (void)whole->step();
        }
      }
      expect(net.is_in_order(), "another order");
      expect(first_difference(copies(net), copies(plain)).empty(), "other bits");
      if (sharded) expect_same_pieces(state_pieces(*shards[1]), state_pieces(*shards[0]));
      shards.clear();
      expect(net.is_in_order(), "another order at the end");
    }
  });
}
