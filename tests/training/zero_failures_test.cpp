#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A replica's training, in which the last replica's loss is infinite, with finite gradients, in the
// first microbatch of the second step.
void train_with_bad_loss(const ZeroOptions& options, at::ScalarType dtype) {
  const AxisNames& axis = options.axis_name;
  OddModel model;
  ZeroTrainer trainer(model, options);
  const auto values = [&] {
    const auto whole = trainer.whole_parameters();
    return copies(model);
  };
  train_step(trainer, model, 0, 2, axis);
  const Parameters before = values();
  for (const std::int64_t microbatch : {0, 1}) {
    const at::Tensor loss = mean_loss(model, samples(1, 2 * microbatch, 2)).to(dtype);
    const bool is_bad = microbatch == 0 && axis_index(axis) + 1 == axis_size(axis);
    trainer.backward(is_bad ? loss + std::numeric_limits<double>::infinity() : loss);
  }
  if (options.non_finite == NonFinite::stop) {
    const std::string message = message_of<Error>([&] { trainer.step(kRate); });
    expect(message ==
               "the loss is not finite at step 2; training has diverged: try a smaller learning "
               "rate or clipping",
           message);
    return;
  }
  const StepReport report = trainer.step(kRate);
  expect(report.skipped && report.reason == "the loss is not finite", "reason " + report.reason);
  expect(std::isfinite(report.gradient_norm), "the gradients are finite");
  expect(first_difference(before, values()).empty(), "a skipped step has changed parameters");
  expect(!train_step(trainer, model, 2, 2, axis).skipped, "the step after is skipped");
  expect(!first_difference(before, values()).empty(), "the step after has changed nothing");
}

}  // namespace

TEST_CASE("one replica's loss that is not finite stops all, or the step is skipped by all") {
  const Quiet quiet;
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t replicas : {1, 3}) {
      for (const NonFinite non_finite : {NonFinite::stop, NonFinite::skip}) {
        for (const Overlap overlap : {Overlap::automatic, Overlap::off}) {
          INFO("stage " << stage << ", " << replicas << " replicas");
          const at::ScalarType dtype = std::array{at::kFloat, at::kBFloat16, at::kHalf,
                                                  at::kDouble}[static_cast<std::size_t>(stage)];
          ZeroOptions options = adam(stage);
          options.accumulate = 2;
          options.non_finite = non_finite;
          options.overlap = overlap;
          CHECK(launch([&] { train_with_bad_loss(options, dtype); },
                       threads(replicas, Backend::gloo)) == 0);
          options.axis_name = "i";
          CHECK_NOTHROW(
              pmap([&] { train_with_bad_loss(options, dtype); }, {.axis_size = replicas})());
        }
      }
    }
  }
}

TEST_CASE("gradients that are not finite stop the training with the parameter's name, or skip") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t replicas : {1, 3}) {
      ZeroOptions options = adam(stage, "i");
      const auto train = [&] {
        pmap(
            [&] {
              OddModel model;
              ZeroTrainer trainer(model, options);
              train_step(trainer, model, 0, 1, "i");
              const Parameters before = copies(model);
              const bool is_bad = axis_index("i") + 1 == replicas;
              const at::Tensor loss = mean_loss(model, samples(1, 0, 2));
              const at::Tensor shift = model.named_parameters()["shift"];
              trainer.backward(loss + shift.sum().to(at::kFloat) *
                                          (is_bad ? std::numeric_limits<double>::infinity() : 1.0));
              const StepReport report = trainer.step(kRate);
              if (!report.skipped) throw Error("not skipped");
              expect(report.reason == "the gradient of parameter 'shift' is not finite",
                     report.reason);
              if (first_difference(before, copies(model)) != "") throw Error("it has changed");
              if (train_step(trainer, model, 2, 1, "i").skipped) throw Error("skipped");
              if (trainer.steps() != 3) throw Error("steps");
            },
            {.axis_size = replicas})();
      };
      CHECK_THAT(message_of<NonFiniteStep>(train),
                 ContainsSubstring("the gradient of parameter 'shift' is not finite at step 2"));
      options.non_finite = NonFinite::skip;
      CHECK_NOTHROW(train());
    }
  }
}

TEST_CASE("all replicas start from the first one's parameters, and falling apart is found out") {
  const Quiet quiet;
  const std::vector<std::string> messages = results_of_job(threads(3, Backend::gloo), [] {
    OddModel model;
    {
      const c10::AutoGradMode no_grad(false);
      for (const at::Tensor& parameter : model.parameters()) {
        parameter.add_(static_cast<double>(axis_index("data")));
      }
    }
    ZeroTrainer trainer(model, adam(1));
    train_step(trainer, model, 0, 1, "data");
    trainer.check_agreement();
    if (axis_index("data") == 2) {
      const c10::AutoGradMode no_grad(false);
      model.named_parameters()["part1.bias"].view(-1)[0] += 1e-3;
    }
    return message_of<Error>([&] { trainer.check_agreement(); });
  });
  for (const std::string& message : messages) {
    CHECK(
        message ==
        "parameter 'part1.bias': replica 2 differs from replica 0: the replicas have fallen apart");
  }
}

TEST_CASE("what a trainer is told must make sense") {
  pmap(
      [] {
        OddModel model;
        const auto refused = [&](ZeroOptions options, const std::string& text) {
          options.axis_name = "i";
          expect_contains(message_of<ValueError>([&] { ZeroTrainer(model, options); }), text);
        };
        refused({.stage = 4}, "stage must be from 0 to 3, not 4");
        refused({.stage = 1, .bucket_mb = 0},
                "bucket_mb must be greater than 0 and at most 1000000, not 0");
        refused({.stage = 1, .accumulate = 0}, "accumulate must be from 1 to 1000000, not 0");
        refused({.stage = 1, .clip_value = 0}, "clip_value must be greater than 0, not 0");
        refused({.stage = 1, .optimizer = {.name = "adan"}}, "there is no optimizer 'adan'");
        refused(
            {.stage = 1, .optimizer = {.groups = {{.pattern = "nothing*", .weight_decay = 0.0}}}},
            "nothing*");

        ZeroTrainer trainer(model, adam(1, "i"));
        expect_contains(message_of<ValueError>([&] { trainer.step(0.1); }),
                        "ZeroTrainer::step over 'i' (zero_failures_test.cpp:");
        expect_contains(message_of<ValueError>([&] { trainer.step(0.1); }),
                        "called after no backward; a step takes that of one microbatch: call "
                        "backward(loss) before");
        expect_contains(message_of<ValueError>([&] { trainer.backward(at::zeros({})); }),
                        "the loss does not depend on any parameter");
        trainer.backward(mean_loss(model, samples(0, 0, 1)));
        expect_contains(
            message_of<ValueError>([&] { trainer.backward(mean_loss(model, samples(0, 0, 1))); }),
            "backward was called 2 times for a step of one microbatch: call step()");
      },
      {.axis_size = 2})();
}

TEST_CASE("a skipped step spoils no later one where gradients are compressed") {
  ZeroOptions options = adam(1, "i");
  options.compression = Compression::bf16;
  options.non_finite = NonFinite::skip;
  pmap(
      [&] {
        OddModel model;
        ZeroTrainer trainer(model, options);
        const at::Tensor loss = mean_loss(model, samples(1, 0, 2));
        trainer.backward(loss * std::numeric_limits<double>::infinity());
        if (!trainer.step(kRate).skipped) throw Error("not skipped");
        if (train_step(trainer, model, 2, 1, "i").skipped) throw Error("skipped");
      },
      {.axis_size = 2})();
}

TEST_CASE("a graph from before a step is not taken for one from after it") {
  pmap(
      [] {
        OddModel model;
        ZeroTrainer trainer(model, adam(1, "i"));
        train_step(trainer, model, 0, 1, "i");
        const at::Tensor stale = mean_loss(model, samples(1, 0, 2));
        train_step(trainer, model, 2, 1, "i");
        expect(message_of<c10::Error>([&] { stale.backward(); }) != "no error",
               "the stale graph was used");
      },
      {.axis_size = 2})();
}

TEST_CASE(
    "a gradient that comes again after its bucket was sent is an error that says what helps") {
  const auto replica = [](training::GradientWay way, bool is_early) {
    const std::vector<at::Tensor> parameters{at::zeros({128}), at::zeros({128})};
    const tree::FlatLayout layout({{128, at::kFloat}, {128, at::kFloat}}, {0, 1}, 512, 2);
    collectives::AxisQueue queue("data", /*overlap=*/false);
    const training::BufferPlan plan(layout, {.way = way}, axis_index("data"), /*overlaps=*/false);
    training::FlatGradients gradients(parameters, plan, "data", queue);
    gradients.begin(/*first=*/true, /*last=*/true);
    gradients.add(0, at::ones({128}));
    std::string message;
    if (is_early) {
      message = message_of<Error>([&] { gradients.add(0, at::ones({128})); });
    } else {
      gradients.add(0, at::ones({128}));
      gradients.finish();
      expect(gradients.mean(0)[0].item<float>() == 2, "the parts are summed");
    }
    expect(message == (is_early
                           ? "a gradient came in parts or late, after others of its bucket "
                             "were sent: switch overlap off, and at ZeRO stages 2 and 3 use stage 1"
                           : ""),
           message);
  };
  const LaunchOptions job = threads(2, Backend::automatic);
  CHECK(launch([&] { replica(training::GradientWay::staged, true); }, job) == 0);
  CHECK(launch([&] { replica(training::GradientWay::kept, false); }, job) == 0);
}

TEST_CASE("parts of a half type's gradient are added in float32, also while it waits for memory") {
  constexpr double kSmall = 1.0 / 512;  // which bfloat16 can't add to 1
  const auto replica = [](training::GradientWay way) {
    const std::vector<at::Tensor> parameters(2, at::zeros({128}, at::kBFloat16));
    const tree::FlatLayout layout({{128, at::kBFloat16}, {128, at::kBFloat16}}, {0, 1}, 256, 2);
    const training::BufferPlan plan(layout, {.way = way}, axis_index("data"), /*overlaps=*/false);
    collectives::AxisQueue queue("data", /*overlap=*/false);
    training::FlatGradients gradients(parameters, plan, "data", queue);
    gradients.begin(/*first=*/true, /*last=*/true);
    gradients.add(1, at::ones({128}, at::kBFloat16));
    gradients.add(1, at::full({128}, kSmall, at::kBFloat16));
    gradients.add(0, at::ones({128}, at::kBFloat16));
    gradients.finish();
    expect(gradients.mean(1)[0].item<float>() == 1 + kSmall, "the parts are summed");
  };
  for (const auto way : {training::GradientWay::kept, training::GradientWay::staged}) {
    CHECK(launch([&] { replica(way); }, threads(2, Backend::automatic)) == 0);
  }
}
