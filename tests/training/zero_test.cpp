#include "framework/training/zero.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/replicas/launch.h"
#include "framework/replicas/pmap.h"
#include "models/model.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/models.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Parameters = std::map<std::string, at::Tensor>;

constexpr std::int64_t kBatch = 3;  // samples a replica and microbatch
constexpr double kRate = 0.01;

ZeroOptions adam(int stage) {
  ZeroOptions options;
  options.stage = stage;
  options.optimizer.name = "adam";
  options.optimizer.lr = kRate;
  options.clip_norm = 0.05;
  return options;
}

// One step on the part of the global batch that is this replica's.
StepReport train_step(ZeroTrainer& trainer, OddModel& model, std::int64_t step,
                      std::int64_t microbatches, const AxisNames& axis) {
  const std::int64_t first = axis_index(axis) * kBatch * microbatches;
  for (std::int64_t m = 0; m < microbatches; ++m) {
    const at::Tensor loss = mean_loss(model, samples(step, first + m * kBatch, kBatch));
    trainer.backward(microbatches == 1 ? loss : loss / static_cast<double>(microbatches));
  }
  return trainer.step(kRate);
}

Parameters trained(ZeroOptions options, std::int64_t large = 37) {
  OddModel model(large);
  ZeroTrainer trainer(model, options);
  for (std::int64_t step = 0; step < 5; ++step) {
    train_step(trainer, model, step, options.accumulate, options.axis_name);
  }
  const auto whole = trainer.whole_parameters();
  return copies(model);
}

// What replica 0 ends with, as threads of a map.
Parameters trained_in_pmap(std::int64_t replicas, ZeroOptions options, std::int64_t large = 37) {
  std::mutex mutex;
  Parameters result;
  options.axis_name = "i";
  (void)pmap(
      [&] {
        Parameters own = trained(options, large);
        const std::lock_guard lock(mutex);
        if (result.empty()) result = own;
        const std::string different = first_difference(own, result);
        if (!different.empty()) throw Error("replicas differ in " + different);
        return at::zeros({});
      },
      {.axis_size = replicas})();
  return result;
}

// The same as threads of a job.
Parameters trained_in_job(const LaunchOptions& launch_options, const ZeroOptions& options) {
  std::mutex mutex;
  Parameters result;
  const int status = launch(
      [&] {
        Parameters own = trained(options);
        const std::lock_guard lock(mutex);
        if (axis_index("data") == 0) result = std::move(own);
      },
      launch_options);
  REQUIRE(status == 0);
  return result;
}

LaunchOptions threads(std::int64_t replicas, Backend backend) {
  return {.replicas = replicas, .mode = LaunchMode::threads, .backend = backend};
}

class Quiet {
 public:
  Quiet() { set_quiet(true); }
  ~Quiet() { set_quiet(false); }
};

}  // namespace

TEST_CASE("all stages, buckets and overlaps give the same bits, for any number of replicas") {
  for (const std::int64_t replicas : {1, 2, 3, 4, 5, 8}) {
    const Parameters expected = trained_in_pmap(replicas, adam(0));
    for (const int stage : {0, 1, 2, 3}) {
      for (const double bucket_mb : {1e-6, 3e-4, 25.0}) {
        for (const Overlap overlap : {Overlap::on, Overlap::off}) {
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
  for (const std::int64_t accumulate : {1, 3}) {
    ZeroOptions options = adam(0);
    options.accumulate = accumulate;
    const Parameters expected = trained_in_pmap(4, options);
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      for (const std::int64_t workers : {4, 3, 1}) {
        for (const int stage : {0, 1, 2, 3}) {
          options.stage = stage;
          options.bucket_mb = stage == 1 ? 25 : 3e-4;
          LaunchOptions launched = threads(4, backend);
          launched.workers = workers;
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
    ZeroOptions options = adam(2);
    options.axis_name = "i";
    options.clip_norm.reset();
    (void)pmap(
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
          return at::zeros({});
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
  ZeroOptions options = adam(stage);
  options.axis_name = "i";
  (void)pmap(
      [&] {
        OddModel model(37, /*has_unused=*/true);
        const Parameters before = copies(model);
        ZeroTrainer trainer(model, options);
        train_step(trainer, model, 0, 1, "i");
        const Parameters after = copies(model);
        const auto expect = [](bool holds, const char* what) {
          if (!holds) throw Error(what);
        };
        expect(after.at("frozen").equal(before.at("frozen")), "frozen has changed");
        expect(after.at("unused").equal(before.at("unused")), "unused has changed");
        expect(after.at("scale").equal(after.at("same_scale")), "scale is not shared any more");
        expect(!after.at("scale").equal(before.at("scale")), "scale has not changed");
        expect(after.at("shift").scalar_type() == at::kDouble, "shift has another dtype");
        expect(!after.at("shift").equal(before.at("shift")), "shift has not changed");
        return at::zeros({});
      },
      {.axis_size = 3})();
}

TEST_CASE("a replica without samples takes part with zeros") {
  ZeroOptions options = adam(2);
  options.axis_name = "i";
  const auto train = [&](bool second_has_samples) {
    std::mutex mutex;
    Parameters result;
    (void)pmap(
        [&] {
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
          const std::lock_guard lock(mutex);
          result = copies(model);
          return at::zeros({});
        },
        {.axis_size = 2})();
    return result;
  };
  CHECK(first_difference(train(false), train(true)) == "");
}

TEST_CASE("gradients that are not finite stop the training with the parameter's name, or skip") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t replicas : {1, 3}) {
      ZeroOptions options = adam(stage);
      options.axis_name = "i";
      const auto train = [&] {
        (void)pmap(
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
              if (first_difference(before, copies(model)) != "") throw Error("it has changed");
              if (train_step(trainer, model, 2, 1, "i").skipped) throw Error("skipped");
              if (trainer.steps() != 3) throw Error("steps");
              return at::zeros({});
            },
            {.axis_size = replicas})();
      };
      CHECK_THAT(message_of<Error>(train),
                 ContainsSubstring("the gradient of parameter 'shift' is not finite at step 2"));
      options.non_finite = NonFinite::skip;
      CHECK_NOTHROW(train());
    }
  }
}

TEST_CASE("all replicas start from the first one's parameters, and falling apart is found out") {
  const Quiet quiet;
  std::mutex mutex;
  std::set<std::string> messages;
  const int status = launch(
      [&] {
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
        const std::string message = message_of<Error>([&] { trainer.check_agreement(); });
        const std::lock_guard lock(mutex);
        messages.insert(message);
      },
      threads(3, Backend::gloo));
  CHECK(status == 0);
  CHECK(messages == std::set<std::string>{"parameter 'part1.bias': replica 2 differs from replica "
                                          "0: the replicas have fallen apart"});
}

TEST_CASE("bytes over a network are those of the stages, and gathered blocks at most two") {
  const Quiet quiet;
  constexpr std::int64_t kReplicas = 4;
  constexpr std::int64_t kLarge = 4099;
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t accumulate : {1, 2}) {
      std::mutex mutex;
      double sent = 0;
      MemoryUse memory;
      double all = 0;
      const int status = launch(
          [&] {
            OddModel model(kLarge);
            ZeroOptions options = adam(stage);
            options.accumulate = accumulate;
            ZeroTrainer trainer(model, options);
            const AxisCall call{"test", "data", std::source_location::current()};
            const Ledger& ledger = replicas_of(call, {}, GroupSizes::equal).ledger();
            train_step(trainer, model, 0, accumulate, "data");
            const auto before = ledger.bytes_sent.load();
            train_step(trainer, model, 1, accumulate, "data");
            const std::lock_guard lock(mutex);
            if (axis_index("data") != 0) return;
            sent = static_cast<double>(ledger.bytes_sent.load() - before);
            memory = trainer.memory();
            for (const auto& item : model.named_parameters()) {
              if (item.key() == "same_scale" || item.key() == "frozen") continue;
              all += static_cast<double>(item.value().numel() * item.value().element_size());
            }
          },
          threads(kReplicas, Backend::gloo));
      REQUIRE(status == 0);
      // Stage 3 gathers in each forward and each backward, and not after the update.
      const double times = stage < 3 ? 2.0 : 1.0 + 2.0 * static_cast<double>(accumulate);
      const double expected = times * (kReplicas - 1) / kReplicas * all;
      INFO("stage " << stage << ", accumulate " << accumulate << ": " << sent << " of " << expected
                    << " bytes");
      CHECK(sent > 0.97 * expected);
      CHECK(sent < 1.05 * expected + 20'000);
      if (stage != 3) continue;
      // The two largest blocks gathered and, where no sum of microbatches is kept, staged.
      const double two_blocks = 4.0 * (8 * kLarge + 7 + 7 * kLarge + 3 + 8 * 256);
      CHECK(static_cast<double>(memory.communication) > 4.0 * 8 * kLarge);
      CHECK(static_cast<double>(memory.communication) < (accumulate == 1 ? 2 : 1) * two_blocks);
      CHECK(static_cast<double>(memory.parameters) < 1.1 * all / kReplicas + 20'000);
    }
  }
}

TEST_CASE("what a trainer is told must make sense") {
  (void)pmap(
      [] {
        OddModel model;
        const auto refused = [&](const ZeroOptions& changed, const std::string& text) {
          ZeroOptions options = changed;
          options.axis_name = "i";
          const std::string message = message_of<ValueError>([&] { ZeroTrainer(model, options); });
          if (message.find(text) == std::string::npos) throw Error(message + " without " + text);
        };
        ZeroOptions options = adam(4);
        refused(options, "stage is 4; it must be 0, 1, 2 or 3");
        options = adam(1);
        options.bucket_mb = 0;
        refused(options, "bucket_mb is 0");
        options = adam(1);
        options.accumulate = 0;
        refused(options, "accumulate is 0");
        options = adam(1);
        options.optimizer.name = "adan";
        refused(options, "unknown optimizer 'adan'");
        options = adam(1);
        options.optimizer.groups = {{.pattern = "nothing*", .weight_decay = 0.0}};
        refused(options, "nothing*");

        options = adam(1);
        options.axis_name = "i";
        ZeroTrainer trainer(model, options);
        const auto expect = [](const std::string& message, const std::string& text) {
          if (message.find(text) == std::string::npos) throw Error(message + " without " + text);
        };
        expect(message_of<ValueError>([&] { trainer.step(0.1); }),
               "step() after 0 of 1 microbatches");
        expect(message_of<ValueError>([&] { trainer.backward(at::zeros({})); }),
               "the loss does not depend on any parameter");
        trainer.backward(mean_loss(model, samples(0, 0, 1)));
        expect(
            message_of<ValueError>([&] { trainer.backward(mean_loss(model, samples(0, 0, 1))); }),
            "backward was called 2 times for a step of 1 microbatches");
        return at::zeros({});
      },
      {.axis_size = 2})();
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

TEST_CASE("a skipped step spoils no later one where gradients are compressed") {
  ZeroOptions options = adam(1);
  options.axis_name = "i";
  options.compression = Compression::bf16;
  options.non_finite = NonFinite::skip;
  (void)pmap(
      [&] {
        OddModel model;
        ZeroTrainer trainer(model, options);
        const at::Tensor loss = mean_loss(model, samples(1, 0, 2));
        trainer.backward(loss * std::numeric_limits<double>::infinity());
        if (!trainer.step(kRate).skipped) throw Error("not skipped");
        if (train_step(trainer, model, 2, 1, "i").skipped) throw Error("skipped");
        return at::zeros({});
      },
      {.axis_size = 2})();
}

TEST_CASE("at most two blocks are gathered, also where forwards without a backward come between") {
  const Quiet quiet;
  std::mutex mutex;
  MemoryUse memory;
  std::vector<std::string> messages;
  const int status = launch(
      [&] {
        const auto model = make_model({.name = "mlp", .hidden = {160, 160, 160, 160}}, 160, 160, 0);
        ZeroOptions options = adam(3);
        options.accumulate = 2;  // so that nothing is staged
        ZeroTrainer trainer(*model, options);
        const at::Tensor inputs = at::ones({2, 160});
        for (std::int64_t step = 0; step < 4; ++step) {
          for (int microbatch = 0; microbatch < 2; ++microbatch) {
            trainer.backward(model->forward(inputs).pow(2).mean());
          }
          trainer.step(kRate);
          const c10::AutoGradMode no_grad(false);
          for (int i = 0; i < 3; ++i) (void)model->forward(inputs);
        }
        trainer.backward(model->forward(inputs).sum());
        trainer.backward(model->forward(inputs).sum());
        const MemoryUse use = trainer.memory();
        const auto whole = trainer.whole_parameters();
        const std::string step_message = message_of<ValueError>([&] { trainer.step(kRate); });
        const std::lock_guard lock(mutex);
        messages.push_back(step_message);
        memory = use;
      },
      threads(2, Backend::gloo));
  REQUIRE(status == 0);
  const std::int64_t block = 4 * (160 * 160 + 256);
  CHECK(memory.communication >= 4 * 160 * 161);
  CHECK(memory.communication <= 2 * block);
  for (const std::string& message : messages) {
    CHECK(message == "ZeroTrainer: step() while whole_parameters() lives");
  }
}

TEST_CASE("a graph from before a step is not taken for one from after it") {
  (void)pmap(
      [] {
        OddModel model;
        ZeroOptions options = adam(1);
        options.axis_name = "i";
        ZeroTrainer trainer(model, options);
        train_step(trainer, model, 0, 1, "i");
        const at::Tensor stale = mean_loss(model, samples(1, 0, 2));
        train_step(trainer, model, 2, 1, "i");
        bool is_refused = false;
        try {
          stale.backward();
        } catch (const std::exception&) {
          is_refused = true;
        }
        if (!is_refused) throw Error("the stale graph was used");
        return at::zeros({});
      },
      {.axis_size = 2})();
}

TEST_CASE("gradients compressed to bfloat16 train as well") {
  constexpr std::int64_t kSteps = 80;
  const auto final_loss = [&](Compression compression, int stage) {
    double loss = 0;
    ZeroOptions options = adam(stage);
    options.axis_name = "i";
    options.clip_norm.reset();
    options.compression = compression;
    (void)pmap(
        [&] {
          OddModel model;
          ZeroTrainer trainer(model, options);
          for (std::int64_t step = 0; step < kSteps; ++step) {
            train_step(trainer, model, step % 4, 1, "i");
          }
          const c10::AutoGradMode no_grad(false);
          if (axis_index("i") == 0) loss = mean_loss(model, samples(0, 0, 40)).item<double>();
          return at::zeros({});
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
