// Replicas whose parts of the samples are unequal, or empty.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/range.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/data/sampler.h"
#include "framework/maps/pmap.h"
#include "framework/training/data_parallel.h"
#include "framework/training/random_draws.h"
#include "tests/catch.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/message_of.h"
#include "tests/support/occurrences.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// The README's first program.
struct SineNet : torch::nn::Module {
  Tensor forward(const Tensor& x) { return last(hidden(x).tanh()); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(1, 32));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(32, 1));
};

// The gradients of two steps of it, and the parameters after these.
Parameters learnt_sine(std::int64_t replicas, ZeroOptions options) {
  options.axis_name = "i";
  options.optimizer = {.name = "adam"};
  return result_of_map(replicas, [&] {
    const Tensor x = own_part(at::linspace(-3, 3, 64).unsqueeze(1), "i");
    const auto net = seeded(7, [] { return std::make_shared<SineNet>(); });
    ZeroTrainer trainer(*net, options);
    Parameters seen;
    for (int step = 0; step < 2; ++step) {
      const Tensor loss = (net->forward(x) - x.sin()).square().mean();
      trainer.backward(loss, {.samples = x.size(0)});
      trainer.visit_gradients([&](const std::string& name, const Tensor& gradient) {
        seen[std::to_string(step) + name] = gradient.clone();
      });
      trainer.step(0.01);
    }
    const auto whole = trainer.whole_parameters();
    seen.merge(copies(*net));
    return seen;
  });
}

void expect_tensor(const Tensor& actual, const Tensor& expected, const std::string& what) {
  expect(actual.equal(expected), "other values: " + what);
}

}  // namespace

TEST_CASE("own_part gives each replica its rows, in order, and perhaps none") {
  for (const std::int64_t replicas : {1, 2, 3, 7, 9, 17}) {
    const Tensor all = at::arange(30).view({15, 2});
    pmap(
        [&] {
          const Tensor own = own_part(all, "i");
          const std::int64_t rows = own.size(0);
          expect(rows == 15 / replicas || rows == 15 / replicas + 1, "unequal parts");
          // As many rows on all, for the gathering.
          const Tensor padded = at::cat({own, at::full({15 - rows, 2}, -1, at::kLong)});
          const Tensor gathered = all_gather(padded, "i", {.tiled = true});
          expect_tensor(gathered.masked_select(gathered >= 0).view({15, 2}), all, "rows");
          const std::string scalar =
              message_of<ValueError>([] { (void)own_part(at::ones({}), "i"); });
          expect_contains(scalar, "own_part");
        },
        {.axis_size = replicas})();
  }
}

TEST_CASE("the README's program computes the same with any number of replicas") {
  const Parameters alone = learnt_sine(1, {});
  for (std::int64_t replicas = 2; replicas <= 65; ++replicas) {
    const Parameters together = learnt_sine(replicas, {.stage = static_cast<int>(replicas % 4)});
    for (const auto& [name, value] : alone) {
      INFO(replicas << " replicas: " << name);
      CHECK(together.at(name).allclose(value, 1e-4, 1e-6));
    }
  }
}

TEST_CASE("a loss counts by its samples, and not at all without any") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  in_every_placement(3, [&] {
    const std::int64_t own = axis_index("data");
    const auto samples = static_cast<double>(own);  // 0, 1 and 2
    const std::vector<double> slopes{nan, 3, 6};
    const double slope = slopes[static_cast<std::size_t>(own)];
    // 1/3 · 3 + 2/3 · 6
    const Tensor mean = at::full({3}, 5.0);
    const auto leaf = [] { return at::ones({3}).set_requires_grad(true); };
    {
      const std::vector<Tensor> tree{leaf(), leaf()};
      DataParallel parallel(tree, "data");
      const auto loss = [&] { return (tree[0] * slope).sum(); };
      tree[0].mutable_grad() = at::full({3}, 2.0);
      tree[1].mutable_grad() = at::full({3}, 7.0);
      parallel.backward(loss(), {.samples = samples});
      expect_tensor(tree[0].grad(), mean + 2, "the mean and what was there");
      expect_tensor(tree[1].grad(), at::full({3}, 7.0), "what no loss reaches");
      tree[0].mutable_grad().reset();
      parallel.accumulate(loss(), {.samples = samples});
      parallel.backward(loss(), {.samples = samples});
      expect_tensor(tree[0].grad(), mean * 2, "two microbatches");
      tree[0].mutable_grad().reset();
      // Three samples in one microbatch and one, of replica 1, in the other.
      parallel.accumulate(loss(), {.samples = samples, .of = 4});
      parallel.backward(loss(), {.samples = own == 1 ? 1 : 0, .of = 4});
      expect_tensor(tree[0].grad(), at::full({3}, 4.5), "four samples");
      tree[0].mutable_grad().reset();
      parallel.backward(own == 0 ? Tensor() : loss(), {.samples = samples});
      expect_tensor(tree[0].grad(), mean, "an undefined loss");
      tree[0].mutable_grad().reset();
      parallel.backward(loss(), {.samples = 0});
      expect_tensor(tree[0].grad(), at::full({3}, 0.0), "no samples at all");
      expect_contains(message_of<ValueError>([&] { parallel.backward(loss(), {.samples = -1}); }),
                      "samples is -1");
    }
    for (const int stage : {0, 1, 2, 3}) {
      OddModel model;
      ZeroTrainer trainer(model, {.stage = stage, .overlap = Overlap::on});
      Tensor loss = mean_loss(model, lockstep::testing::samples(0, own, 2));
      if (own == 0) loss = loss * nan;
      trainer.backward(loss, {.samples = samples});
      Parameters gradients;
      trainer.visit_gradients([&](const std::string& name, const Tensor& gradient) {
        gradients[name] = gradient.clone();
      });
      OddModel alone;
      const auto of = [&](std::int64_t first) {
        return mean_loss(alone, lockstep::testing::samples(0, first, 2));
      };
      ((of(1) + of(2) * 2) / 3).backward();
      for (const auto& item : alone.named_parameters()) {
        if (!item.value().requires_grad() || item.key() == "same_scale") continue;
        expect(gradients.at(item.key()).allclose(item.value().grad(), 1e-4, 1e-6), item.key());
      }
      expect(!trainer.step(0.1).skipped, "a skipped step");
    }
  });
}

TEST_CASE("equal numbers of samples change no bit") {
  const auto trained = [](const LaunchOptions& job, const ZeroOptions& options, bool weighs) {
    return result_of_job(job, [&] {
      OddModel model;
      ZeroTrainer trainer(model, options);
      for (std::int64_t step = 0; step < 3; ++step) {
        const Tensor loss = mean_loss(model, samples(step, 2 * axis_index("data"), 2));
        trainer.backward(
            loss, weighs ? training::BackwardOptions{.samples = 2} : training::BackwardOptions{});
        trainer.step(0.1);
      }
      const auto whole = trainer.whole_parameters();
      return copies(model);
    });
  };
  for (const Backend backend : {Backend::automatic, Backend::gloo}) {
    for (const std::int64_t workers : {3, 1}) {
      const LaunchOptions job = threads(3, backend, workers);
      const Parameters expected = trained(job, adam(0), /*weighs=*/false);
      for (const int stage : {0, 1, 2, 3}) {
        for (const Overlap overlap : {Overlap::on, Overlap::off}) {
          ZeroOptions options = adam(stage);
          options.overlap = overlap;
          INFO(stage << " " << workers << " " << static_cast<int>(overlap));
          CHECK(first_difference(trained(job, options, /*weighs=*/true), expected).empty());
        }
      }
    }
  }
}

TEST_CASE("unequal parts without their numbers of samples are warned of once") {
  const auto warnings = [](const std::function<void(DataParallel&, const Tensor&)>& train) {
    const CapturedStderr captured;
    pmap(
        [&] {
          has_unequal_parts = false;  // of another test's, in a thread that stays
          const Tensor leaf = at::ones({3}).set_requires_grad(true);
          DataParallel parallel(std::vector{leaf}, "i", {.may_repeat_samples = true});
          train(parallel, leaf);
        },
        {.axis_size = 2})();
    return count(captured.text(), "call backward(loss, {.samples = …})");
  };
  const auto backward = [](DataParallel& parallel, const Tensor& leaf) {
    for (int i = 0; i < 2; ++i) {
      (void)own_part(at::ones({5}), "i");
      parallel.backward(leaf.sum());
    }
  };
  CHECK(warnings(backward) == 1);
  CHECK(warnings([](DataParallel&, const Tensor& leaf) {
          Sampler sampler({.size = 3, .replicas = 2});
          for (std::int64_t at = 0; at < 6; at = sampler.end_of_step(at)) {
            (void)sampler.indices(at, axis_index("i"));
            leaf.sum().backward();
          }
        }) == 1);
  CHECK(warnings([](DataParallel& parallel, const Tensor& leaf) {
          const Tensor part = own_part(at::ones({5}), "i");
          parallel.backward(leaf.sum(), {.samples = part.size(0)});
          parallel.backward(leaf.sum());
          (void)own_part(at::ones({4}), "i");
          parallel.backward(leaf.sum());
        }) == 0);
}
