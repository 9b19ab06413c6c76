#include "framework/training/deferred_parameters.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/optim/sgd.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/data_parallel.h"
#include "framework/training/process_generator.h"
#include "framework/training/sharded_optimizer.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Gives parameters the values that they have in `like`.
std::function<at::Tensor(const std::string&)> values_of(const torch::nn::Module& like) {
  return [values = copies(like)](const std::string& name) { return values.at(name); };
}

// The parameters after three steps.
Parameters trained(ZeroOptions options, bool is_deferred) {
  OddModel model;
  if (is_deferred) {
    options.initialize = values_of(model);
    defer(model);
  }
  ZeroTrainer trainer(model, options);
  for (std::int64_t step = 0; step < 3; ++step) {
    train_step(trainer, model, step, options.accumulate, options.axis_name);
  }
  trainer.check_agreement();
  const auto whole = trainer.whole_parameters();
  return copies(model);
}

Parameters trained_in_map(std::int64_t replicas, int stage, bool is_deferred) {
  return result_of_map(replicas, [&] { return trained(adam(stage, "i"), is_deferred); });
}

// One large and one small Block, and a parameter outside of them.
class Blocks : public torch::nn::Module {
 public:
  class Row : public Block {
   public:
    explicit Row(std::int64_t size, at::ScalarType dtype)
        : w_(register_parameter("w",
                                at::empty({size}, at::TensorOptions(dtype).device(at::kMeta)))) {}
    at::Tensor forward(const at::Tensor& input) override { return input + w_.sum(); }

   private:
    at::Tensor w_;
  };
  explicit Blocks(at::ScalarType dtype = at::kFloat)
      : large_(register_module("large", std::make_shared<Row>(1000, dtype))),
        small_(register_module("small", std::make_shared<Row>(70, dtype))),
        scale_(register_parameter("scale",
                                  at::empty({3}, at::TensorOptions(dtype).device(at::kMeta)))) {}
  at::Tensor loss() { return (*small_)((*large_)(scale_.sum())); }

 private:
  std::shared_ptr<Row> large_;
  std::shared_ptr<Row> small_;
  at::Tensor scale_;
};

// A third: no number of a half type.
at::Tensor thirds(const std::string& name) {
  const std::int64_t size = name == "large.w" ? 1000 : name == "small.w" ? 70 : 3;
  return at::full({size}, 1.0 / 3);
}

ZeroOptions sgd(int stage, std::function<at::Tensor(const std::string&)> initialize) {
  return {.stage = stage, .optimizer = {.name = "sgd"}, .initialize = std::move(initialize)};
}

template <typename Thrown>
void expect_refused(torch::nn::Module& model, const ZeroOptions& options, const std::string& part) {
  const std::string message =
      message_of<Thrown>([&] { const ZeroTrainer trainer(model, options); });
  expect_contains(message, part);
  for (const at::Tensor& parameter : model.parameters()) {
    expect(parameter.is_meta(), "a parameter is not on the meta device any more");
  }
}

}  // namespace

TEST_CASE("deferred parameters train with the bits of a module made whole, at every stage") {
  const Quiet quiet;
  for (const std::int64_t replicas : {1, 2, 3, 4}) {
    const Parameters expected = trained_in_map(replicas, 0, false);
    for (const int stage : {0, 1, 2, 3}) {
      INFO(replicas << " replicas, stage " << stage);
      CHECK(first_difference(trained_in_map(replicas, stage, true), expected) == "");
      for (const Backend backend : {Backend::automatic, Backend::gloo}) {
        for (const std::int64_t workers : {std::int64_t{1}, replicas / 2, replicas}) {
          if (workers == 0) continue;
          const LaunchOptions launched = threads(replicas, backend, workers);
          INFO(workers << " workers, gloo " << (backend == Backend::gloo));
          const auto train = [&] { return trained(adam(stage), true); };
          CHECK(first_difference(result_of_job(launched, train), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("a deferred module has its values, ties and frozen parameters once its trainer is made") {
  in_every_placement(3, [] {
    for (const int stage : {0, 1, 2, 3}) {
      OddModel model;
      const Parameters values = copies(model);
      ZeroOptions options = adam(stage);
      options.initialize = values_of(model);
      defer(model);
      {
        ZeroTrainer trainer(model, options);
        trainer.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          expect(value.equal(values.at(name)), name + " has other values");
        });
        const auto all = model.named_parameters();
        expect(all["scale"].is_same(all["same_scale"]), "tied parameters are two");
        expect(!all["frozen"].requires_grad() && all["scale"].requires_grad(), "other gradients");
        trainer.release_parameters();
      }
      expect(first_difference(copies(model), values).empty(), "other values at the end");
    }
  });
}

TEST_CASE("some parameters may be deferred, and others have values") {
  in_every_placement(2, [] {
    for (const int stage : {0, 1, 2, 3}) {
      OddModel model;
      const Parameters values = copies(model);
      ZeroOptions options = adam(stage);
      options.initialize = [&](const std::string& name) {
        expect(name.starts_with("part1."), "made " + name);
        return values.at(name);
      };
      defer(*model.named_modules("", /*include_self=*/false)["part1"]);
      ZeroTrainer trainer(model, options);
      const auto whole = trainer.whole_parameters();
      expect(first_difference(copies(model), values).empty(), "other values");
    }
  });
}

TEST_CASE("one deferred parameter at a time is whole, and only where a replica has a part of it") {
  in_every_placement(4, [] {
    std::vector<std::string> made;
    int alive = 0;
    bool is_cut = false;
    Blocks model;
    {
      const ZeroTrainer trainer(model, sgd(3, [&](const std::string& name) {
                                  expect(alive == 0, "another parameter is whole beside " + name);
                                  made.push_back(name);
                                  ++alive;
                                  const at::Tensor values = thirds(name);
                                  return at::from_blob(values.data_ptr(), values.sizes(),
                                                       [&alive, values](void*) { --alive; });
                                }));
      expect(alive == 0, "a parameter stays whole");
      is_cut = model.named_parameters()["large.w"].is_meta();
      expect(trainer.memory().initialization <= 4000, "more was made than the largest");
    }
    expect(std::ranges::count(made, "large.w") == 1, "the large one is not made once");
    // Where Blocks are cut, replica 3 has no part of their 70 and 3 elements.
    if (is_cut && axis_index("data") == 3) expect(made.size() == 1, "a small one is made");
  });
}

TEST_CASE("masters of half types start from values that are not rounded") {
  in_every_placement(3, [] {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      for (const int stage : {0, 1, 2, 3}) {
        Blocks model(dtype);
        const std::string frozen = model.named_parameters().front().key();
        model.parameters().front().set_requires_grad(false);
        ZeroTrainer trainer(model, sgd(stage, thirds));
        std::int64_t masters = 0;
        trainer.visit_state([&](const StatePiece& piece) {
          if (!piece.name.starts_with("parameters/")) return;
          masters += piece.values.numel();
          expect(piece.values.equal(at::full({piece.values.numel()}, 1.0 / 3)), "not a third");
        });
        expect(masters > 0 || axis_index("data") > 0, "no masters");
        trainer.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          expect(value.equal(thirds(name).to(dtype)), name + " is not a third, rounded");
        });
        trainer.backward(model.loss());
        (void)trainer.step(0.25);
        trainer.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          const at::Tensor expected = name == frozen ? thirds(name) : thirds(name) - 0.25;
          expect(value.equal(expected.to(dtype)), name + " was rounded before");
        });
      }
    }
  });
}

TEST_CASE("a parameter can be made by torch's own initialization under a guard") {
  in_every_placement(3, [] {
    Blocks model;
    ZeroOptions options = sgd(1, [](const std::string& name) {
      return seeded(Key(7).fold(name).bits(), [&] { return thirds(name).uniform_(); });
    });
    options.randomness = Randomness::strict;
    ZeroTrainer trainer(model, options);
    trainer.check_agreement();
    trainer.backward(model.loss());
    (void)trainer.step(0.25);
    expect(!trainer.has_random_draws(), "a draw in a guard was noticed");
  });
}

TEST_CASE("a deferred parameter that can't be made is refused by its name, and stays deferred") {
  in_every_placement(1, [] {
    for (const int stage : {0, 1, 2, 3}) {
      Blocks model;
      expect_refused<ValueError>(model, sgd(stage, nullptr),
                                 "parameter 'scale' is on the meta device and has no values");
      const auto expect_bad = [&](const at::Tensor& values, const std::string& part) {
        const auto gives = [values](const std::string& name) {
          return name == "small.w" ? values : thirds(name);
        };
        expect_refused<ValueError>(model, sgd(stage, gives), "gave parameter 'small.w' " + part);
      };
      expect_bad({}, "no values");
      expect_bad(at::zeros({7}), "values [7] Float on cpu");
      expect_bad(at::zeros({70}, at::kLong), "values [70] Long on cpu");
      expect_bad(at::empty({70}, at::TensorOptions(at::kMeta)), "values [70] Float on meta");
      const ZeroTrainer trainer(model, sgd(stage, thirds));
    }
  });
}

TEST_CASE("replicas that make other values, or do not defer alike, are told so") {
  in_every_placement(3, [] {
    Blocks model;
    expect_refused<Error>(model,
                          sgd(0,
                              [](const std::string& name) {
                                return thirds(name) + (axis_index("data") == 1 ? 1 : 0);
                              }),
                          "other values on replica 1 than on replica 0: they must depend");
    OddModel odd;
    ZeroOptions options = adam(0);
    options.initialize = values_of(odd);
    if (axis_index("data") == 2) defer(odd);
    const std::string message =
        message_of<ValueError>([&] { const ZeroTrainer trainer(odd, options); });
    expect_contains(message, "the replicas have different models");
    expect_contains(message, "on the meta device on replica 2");
  });
}

TEST_CASE("what can't defer says so") {
  in_every_placement(2, [] {
    Blocks model;
    const std::string averaging =
        message_of<ValueError>([&] { const DataParallel parallel(model); });
    expect_contains(averaging, "DataParallel: parameter 'scale' is on the meta device");
    const std::string sharded = message_of<ValueError>([&] {
      const ShardedOptimizer optimizer(model, [](const std::vector<at::Tensor>& parameters) {
        return std::make_unique<torch::optim::SGD>(parameters, 0.1);
      });
    });
    expect_contains(sharded, "ShardedOptimizer: parameter 'scale' is on the meta device");
    const at::Tensor other = model.named_parameters()["scale"].detach();
    expect_refused<ValueError>(model, sgd(0, thirds),
                               "parameter 'scale' is on the meta device, and other tensors use");
  });
}
