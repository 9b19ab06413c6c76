#include "framework/training/keyed_module.h"

#include <cmath>
#include <sstream>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/training/data_parallel.h"
#include "framework/training/stochastic_depth.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A program's own module that draws: adds the bits of its key.
class OffsetImpl : public torch::nn::Cloneable<OffsetImpl>, public KeyedModule {
 public:
  OffsetImpl() : KeyedModule("offset") {}
  void reset() override {}
  at::Tensor forward(const at::Tensor& input) { return input + offset_of(next_key()); }
  static double offset_of(const Key& key) {
    return std::ldexp(static_cast<double>(key.bits()), -64);
  }
};
TORCH_MODULE(Offset);

}  // namespace

TEST_CASE("a program's own module draws from the keys of its kind, place and calls") {
  in_every_placement(3, [] {
    const std::int64_t replica = axis_index("data");
    Offset offset;
    offset->eval();  // a trainer tells it in any mode
    torch::nn::Sequential net(torch::nn::Linear(4, 4), offset, offset);
    ZeroTrainer trainer(*net, {.accumulate = 2, .seed = 7});
    for (std::uint64_t step = 0; step < 2; ++step) {
      for (std::uint64_t microbatch = 0; microbatch < 2; ++microbatch) {
        for (std::uint64_t call = 0; call < 2; ++call) {
          const Key key = Key(7)
                              .fold("offset")
                              .fold(static_cast<std::uint64_t>(replica))
                              .fold(step)
                              .fold(microbatch)
                              .fold("1")
                              .fold(call);
          const at::Tensor expected = at::zeros({2}) + OffsetImpl::offset_of(key);
          expect(offset->forward(at::zeros({2})).equal(expected), "another key");
        }
        trainer.backward(net->forward(at::ones({1, 4})).sum());
      }
      trainer.step(0.1);
    }
  });
}

TEST_CASE("a copy of a module that draws follows the same trainer, and a new trainer counts anew") {
  pmap(
      [] {
        Offset offset;
        torch::nn::Sequential net(torch::nn::Linear(1, 1), offset);
        at::Tensor first;
        for (int trainer = 0; trainer < 2; ++trainer) {
          const DataParallel parallel(*net, "i");
          const auto copy = std::dynamic_pointer_cast<OffsetImpl>(offset->clone());
          const at::Tensor now = offset->forward(at::zeros({1}));
          expect(copy->forward(at::zeros({1})).equal(now), "the copy has another key");
          if (first.defined()) expect(now.equal(first), "another key at the start");
          expect(!offset->forward(at::zeros({1})).equal(now), "the same key twice");
          first = now;
        }
      },
      {.axis_size = 1})();
}

TEST_CASE("a module that draws says what to do without a trainer, and in a map inside it") {
  Offset offset;
  CHECK(message_of<Error>([&] { (void)offset->forward(at::zeros({1})); }) ==
        "a KeyedModule 'offset' in training mode belongs to no trainer that lives, which says what "
        "step it is: make a ZeroTrainer or a DataParallel for a module that registers it, call "
        "eval() for an "
        "evaluation, or draw from a lockstep::Key of your own");
  torch::nn::Sequential net(torch::nn::Linear(1, 1), offset);
  pmap(
      [&] {
        const DataParallel parallel(*net, "i");
        expect_contains(message_of<Error>([&] {
                          (void)vmap([&](const at::Tensor& x) { return net->forward(x); },
                                     {.axis_name = "lanes", .in_axes = {0}})(at::ones({2, 1}));
                        }),
                        "KeyedModule 'offset' '1' runs in a map inside the replica that trains it, "
                        "or in another thread: there draw from a lockstep::Key of your own");
      },
      {.axis_size = 1})();
}

TEST_CASE("stochastic depth drops whole rows with its probability, and keeps the mean") {
  constexpr std::int64_t kRows = 100'000;
  const at::Tensor input = at::ones({kRows, 2, 3}, at::kDouble).set_requires_grad(true);
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor output = stochastic_depth(input, p, Key(3));
    const at::Tensor rows = output.detach().select(2, 0).select(1, 0);
    CHECK(output.detach().equal(rows.view({kRows, 1, 1}).expand({kRows, 2, 3})));
    const at::Tensor is_zero = rows.eq(0);
    CHECK(rows.masked_select(is_zero.logical_not()).eq(1 / (1 - p)).all().item<bool>());
    const double share = is_zero.to(at::kDouble).mean().item<double>();
    CHECK(std::abs(share - p) < 5 * std::sqrt(p * (1 - p) / static_cast<double>(kRows)));
    for (std::int64_t row = 0; row < 50; ++row) {
      const bool keeps =
          std::ldexp(static_cast<double>(Key(3).draw(static_cast<std::uint64_t>(row))), -64) >= p;
      CHECK(is_zero[row].item<bool>() == !keeps);
    }
    input.mutable_grad().reset();
    output.sum().backward();
    CHECK(input.grad().equal(output.detach()));
  }
  CHECK(stochastic_depth(input, 0, Key(1)).is_same(input));
  CHECK(stochastic_depth(input, 1, Key(1)).eq(0).all().item<bool>());
  CHECK(stochastic_depth(at::ones({0, 3}), 0.5, Key(1)).numel() == 0);
  CHECK(stochastic_depth(at::ones({4}, at::kBFloat16), 0.5, Key(1)).scalar_type() == at::kBFloat16);
}

TEST_CASE("a StochasticDepth drops what its key says, in training mode alone") {
  pmap(
      [] {
        StochasticDepth depth(0.5);
        torch::nn::Sequential net(torch::nn::Linear(2, 2), depth);
        const DataParallel parallel(*net, "i", {.seed = 9});
        const at::Tensor input = at::arange(64.0).view({32, 2}) + 1;
        const Key key = Key(9)
                            .fold("stochastic_depth")
                            .fold(static_cast<std::uint64_t>(axis_index("i")))
                            .fold(std::uint64_t{0})
                            .fold(std::uint64_t{0})
                            .fold("1")
                            .fold(std::uint64_t{0});
        expect(depth(input).equal(stochastic_depth(input, 0.5, key)), "other rows");
        depth->eval();
        expect(depth(input).is_same(input), "it drops in an evaluation");
      },
      {.axis_size = 2})();
  std::stringstream text;
  text << StochasticDepth(0.5);
  CHECK(text.str() == "lockstep::StochasticDepth(p=0.5)");
}

TEST_CASE("what is no stochastic depth is refused") {
  CHECK_THROWS_WITH(StochasticDepth(1.5), "stochastic_depth: p must be in [0, 1], not 1.5");
  CHECK_THROWS_AS(StochasticDepth(std::nan("")), ValueError);
  const std::string rule = "stochastic_depth: the input must be floating and have rows, not ";
  CHECK_THROWS_WITH(stochastic_depth(at::ones({2}, at::kLong), 0.1, Key(1)),
                    rule + "Long of 1 dimensions");
  CHECK_THROWS_WITH(stochastic_depth(at::ones({}), 0.1, Key(1)), rule + "Float of 0 dimensions");
}
