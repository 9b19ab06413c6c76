#include "framework/training/zero.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/support/settings.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("all stages, buckets and overlaps give the same bits, for any number of replicas") {
  Sample sample("stages, buckets and overlaps");
  for (const std::int64_t replicas : {1, 2, 3, 4, 5, 8}) {
    const Parameters expected = trained_in_pmap(replicas, adam(0));
    for (const int stage : {0, 1, 2, 3}) {
      for (const double bucket_mb : {1e-6, 3e-4, 25.0}) {
        for (const Overlap overlap : {Overlap::on, Overlap::off}) {
          if (!sample.next()) continue;
          ZeroOptions options = adam(stage);
          options.bucket_mb = bucket_mb;
          options.overlap = overlap;
          INFO(replicas << " replicas, stage " << stage << ", bucket_mb " << bucket_mb);
          CHECK(first_difference(trained_in_pmap(replicas, options), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("a large parameter among small ones") {
  constexpr std::int64_t kLarge = 90'000;  // 5 MB for both of its layers
  const Parameters expected = trained_in_pmap(3, adam(0), kLarge);
  for (const int stage : {1, 2, 3}) {
    ZeroOptions options = adam(stage);
    options.bucket_mb = 1;
    CHECK(first_difference(trained_in_pmap(3, options, kLarge), expected) == "");
  }
}

TEST_CASE("jobs over both backends, on workers fewer than replicas, give the bits of maps") {
  const Quiet quiet;
  Sample sample("jobs at stages");
  for (const std::int64_t accumulate : {1, 3}) {
    ZeroOptions options = adam(0);
    options.accumulate = accumulate;
    const Parameters expected = trained_in_pmap(4, options);
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      for (const std::int64_t workers : {4, 3, 1}) {
        for (const int stage : {0, 1, 2, 3}) {
          if (!sample.next()) continue;
          options.stage = stage;
          options.bucket_mb = stage == 1 ? 25 : 3e-4;
          const LaunchOptions launched = threads(4, backend, workers);
          INFO("stage " << stage << ", " << workers << " workers, accumulate " << accumulate);
          CHECK(first_difference(trained_in_job(launched, options), expected) == "");
        }
      }
    }
  }
}

TEST_CASE(
    "reducing every microbatch gives the same bits at all stages, and the same up to rounding") {
  ZeroOptions options = adam(0);
  options.accumulate = 3;
  const Parameters summed_first = trained_in_pmap(3, options);
  options.reduce_every_microbatch = true;
  const Parameters expected = trained_in_pmap(3, options);
  for (const int stage : {1, 2, 3}) {
    options.stage = stage;
    CHECK(first_difference(trained_in_pmap(3, options), expected) == "");
  }
  for (const auto& [name, value] : expected) {
    INFO(name);
    CHECK(value.allclose(summed_first.at(name), 1e-4, 1e-5));
  }
}

TEST_CASE("training agrees with a plain loop on the whole batch and torch's Adam") {
  constexpr std::int64_t kSteps = 200;
  for (const std::int64_t replicas : {1, 4}) {
    std::vector<double> losses;
    OddModel plain;
    std::vector<at::Tensor> parameters;  // each once
    for (const auto& item : plain.named_parameters()) {
      if (item.key() != "same_scale") parameters.push_back(item.value());
    }
    torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(kRate));
    std::vector<double> plain_losses;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = mean_loss(plain, samples(step, 0, kBatch * replicas));
      loss.backward();
      optimizer.step();
      plain_losses.push_back(loss.item<double>());
    }
    ZeroOptions options = adam(2, "i");
    // Infinity clips nothing, as in torch.nn.utils.clip_grad_norm_().
    options.clip_norm = options.clip_value = std::numeric_limits<double>::infinity();
    pmap(
        [&] {
          OddModel model;
          ZeroTrainer trainer(model, options);
          for (std::int64_t step = 0; step < kSteps; ++step) {
            if (axis_index("i") == 0) {
              const c10::AutoGradMode no_grad(false);
              losses.push_back(
                  mean_loss(model, samples(step, 0, kBatch * replicas)).item<double>());
            }
            train_step(trainer, model, step, 1, "i");
          }
        },
        {.axis_size = replicas})();
    REQUIRE(losses.size() == plain_losses.size());
    for (std::size_t step = 0; step < losses.size(); ++step) {
      CHECK(std::abs(losses[step] - plain_losses[step]) <= 2e-4 * plain_losses[step] + 1e-7);
    }
  }
}

TEST_CASE("frozen parameters stay, unused ones have gradients of zero, shared ones stay shared") {
  const int stage = GENERATE(0, 1, 2, 3);
  ZeroOptions options = adam(stage, "i");
  pmap(
      [&] {
        OddModel model(37, /*has_unused=*/true);
        const Parameters before = copies(model);
        ZeroTrainer trainer(model, options);
        train_step(trainer, model, 0, 1, "i");
        const Parameters after = copies(model);
        expect(after.at("frozen").equal(before.at("frozen")), "frozen has changed");
        expect(after.at("unused").equal(before.at("unused")), "unused has changed");
        expect(after.at("scale").equal(after.at("same_scale")), "scale is not shared any more");
        expect(!after.at("scale").equal(before.at("scale")), "scale has not changed");
        expect(after.at("shift").scalar_type() == at::kDouble, "shift has another dtype");
        expect(!after.at("shift").equal(before.at("shift")), "shift has not changed");
      },
      {.axis_size = 3})();
}

TEST_CASE("a replica without samples takes part with zeros") {
  ZeroOptions options = adam(2, "i");
  const auto train = [&](bool second_has_samples) {
    return result_of_map(2, [&] {
      OddModel model;
      ZeroTrainer trainer(model, options);
      at::Tensor loss;
      if (axis_index("i") == 0) {
        loss = mean_loss(model, samples(0, 0, 4));
      } else if (second_has_samples) {
        loss = mean_loss(model, samples(0, 0, 4)) * 0.0;
      }
      trainer.backward(loss);
      trainer.step(kRate);
      return copies(model);
    });
  };
  CHECK(first_difference(train(false), train(true)) == "");
}

TEST_CASE("compressed gradients are the same with overlap and without, at all stages") {
  const Quiet quiet;
  ZeroOptions options = adam(0);
  options.compression = Compression::bf16;
  options.bucket_mb = 3e-4;
  const Parameters expected = trained_in_pmap(3, options);
  for (const Backend backend : {Backend::automatic, Backend::gloo}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const Overlap overlap : {Overlap::on, Overlap::off}) {
        options.stage = stage;
        options.overlap = overlap;
        INFO("stage " << stage);
        CHECK(first_difference(trained_in_job(threads(3, backend), options), expected) == "");
      }
    }
  }
}

TEST_CASE("gradients compressed to bfloat16 train as well") {
  constexpr std::int64_t kSteps = 80;
  const auto final_loss = [&](Compression compression, int stage) {
    double loss = 0;
    ZeroOptions options = adam(stage, "i");
    options.clip_norm.reset();
    options.compression = compression;
    pmap(
        [&] {
          OddModel model;
          ZeroTrainer trainer(model, options);
          for (std::int64_t step = 0; step < kSteps; ++step) {
            train_step(trainer, model, step % 4, 1, "i");
          }
          const c10::AutoGradMode no_grad(false);
          if (axis_index("i") == 0) loss = mean_loss(model, samples(0, 0, 40)).item<double>();
        },
        {.axis_size = 3})();
    return loss;
  };
  const double exact = final_loss(Compression::none, 1);
  for (const int stage : {0, 1, 2}) {
    const double compressed = final_loss(Compression::bf16, stage);
    INFO("stage " << stage << ": loss " << compressed << ", uncompressed " << exact);
    CHECK(compressed != exact);
    CHECK(std::abs(compressed - exact) < 0.02 * exact);
  }
}
