// Runs of any config end alike, whole or in parts.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "framework/objectives/metric.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/run/trainer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace testing;

// y = sin(5 x) at points of [0, 1].
std::shared_ptr<const Dataset> sine_samples(std::int64_t size) {
  return made_set({.size = size, .make = [size](const MadeSample& sample) {
                     sample.input.fill_(static_cast<double>(sample.index) /
                                        static_cast<double>(size));
                     sample.target.copy_((5 * sample.input).sin());
                   }});
}

// The mean output, which is no number about as often as one, and never one of as many samples as
// `never_of`.
class RareMetric final : public Metric {
 public:
  Tensor add(const Tensor& outputs, const Tensor& /*targets*/) const override {
    Tensor sums = at::empty({2}, at::kDouble);
    sums[0].fill_(outputs.to(at::kDouble).sum().item<double>());
    sums[1].fill_(static_cast<double>(outputs.size(0)));
    return sums;
  }
  double value(const Tensor& sums) const override {
    const double mean = sums[0].item<double>() / sums[1].item<double>();
    const bool is_odd = static_cast<std::int64_t>(std::fabs(mean) * 1e6) % 2 == 1;
    const bool is_never = sums[1].item<double>() == never_of;
    return is_odd || is_never ? std::numeric_limits<double>::quiet_NaN() : mean;
  }
  bool higher_is_better() const override { return true; }

  static constexpr double never_of = 9;
};

void register_rare() {
  static const bool is_done = [] {
    register_metric(
        {keys::choice("rare", "often no number"), [](const std::shared_ptr<const Loss>& /*loss*/) {
           return std::make_shared<RareMetric>();
         }});
    return true;
  }();
  (void)is_done;
}

using Draws = std::mt19937_64;

std::int64_t from_to(Draws& random, std::int64_t first, std::int64_t last) {
  return first + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(last - first + 1));
}

std::string one_of(Draws& random, const std::vector<std::string>& all) {
  return all[random() % all.size()];
}

// The loss of each line of metrics that has one, by step.
std::map<std::int64_t, double> losses_in(const fs::path& output) {
  std::map<std::int64_t, double> losses;
  for (const nlohmann::json& line : metrics_of(output)) {
    if (line.contains("loss")) losses[line.at("step")] = line.at("loss");
  }
  return losses;
}

// What callbacks are told, by replica 0.
using Told = std::vector<std::string>;

struct RunPart {
  std::optional<std::int64_t> ends_after{};  // as its callback asks
  std::optional<std::int64_t> fails_after{};
  bool goes_on = false;
  bool has_patience = true;
};

void run_part(const std::string& text, const DataSets& data, const fs::path& output,
              const RunPart& part, Told& told) {
  std::vector<keys::Override> overrides;
  if (!part.has_patience) overrides.push_back(keys::parse_set("trainer.patience=null"));
  Config config = parse_config(text, "test", overrides);
  RunOptions options{.output = output, .quiet = true};
  std::mutex mutex;
  const auto note = [&](Trainer& trainer, const std::string& what) {
    if (trainer.zero().steps() > 0 && axis_index("data") == 0) {
      const std::lock_guard lock(mutex);
      told.push_back(what);
    }
  };
  options.callbacks.after_step = [&](Trainer& trainer, const StepEnd& step) {
    note(trainer, str("step ", step.step, ", ", step.samples, " samples, rate ", step.lr));
    if (part.ends_after == step.step) trainer.end_after_step();
    if (part.fails_after == step.step) throw Error("the part is over");
  };
  options.callbacks.after_evaluation = [&](Trainer& trainer, const Evaluation& evaluation) {
    note(trainer,
         str(evaluation.set, " after ", evaluation.step, evaluation.is_best ? ", best" : ""));
  };
  const RunFolderLock lock = folder_of_run(config, options, part.goes_on);
  pmap([&] { Trainer(config, data, options).run(); },
       {.axis_name = "data", .axis_size = config.launch.replicas})();
}

}  // namespace

TEST_CASE("a run in parts ends as the whole one, whatever its figures and its patience") {
  register_rare();
  std::cout << "resumed runs: LOCKSTEP_SEED=" << seed() << std::endl;
  Draws random(seed());
  int ended_early = 0;
  for (int round = 0; round < 16; ++round) {
    const std::string best = one_of(random, {"none", "loss", "rare"});
    const std::int64_t every = from_to(random, 1, 4);
    const std::string text =
        str("model: {name: mlp, hidden: [4]}\ndata: {name: pmean_example, batch_size: 4}\n"
            "optimizer: {name: ",
            one_of(random, {"sgd", "adam"}),
            ", lr: 0.05}\n"
            "schedule: {name: ",
            one_of(random, {"constant", "cosine"}),
            "}\n"
            "parallel: {replicas: 2, threads_per_replica: 1, zero_stage: ",
            from_to(random, 0, 3), ", compression: ", one_of(random, {"none", "bf16"}),
            "}\n"
            "trainer: {steps: 24, eval_every: ",
            every, ", log_every: ", from_to(random, 1, 7),
            ", metrics: [rare], patience: ", from_to(random, 1, 5),
            ", ema_decay: ", one_of(random, {"null", "0.9"}),
            "}\n"
            "checkpoint: {best: ",
            best, ", every: ", from_to(random, 0, 5), ", keep: 100}\n");
    // Figures of a set of 9 are never numbers.
    const DataSets data{.train = sine_samples(30),
                        .validation = sine_samples(from_to(random, 9, 11)),
                        .test = random() % 2 == 0 ? sine_samples(7) : nullptr};
    INFO("round " << round << "\n" << text << data.validation->size() << " to validate");
    const TemporaryFolder folder;
    const fs::path whole = folder.path() / "whole";
    Told expected;
    run_part(text, data, whole, {}, expected);
    const auto steps = result_in(whole)["steps"].get<std::int64_t>();
    ended_early += steps < 24 ? 1 : 0;
    if (steps < 3) continue;
    // A part ends as a callback says, with evaluations that a whole run has only where they are
    // due, or by an error after any step.
    const bool fails = random() % 2 == 0;
    const std::int64_t evaluations = (steps - 1) / every;
    if (evaluations == 0) continue;
    const std::int64_t cut =
        fails ? from_to(random, 1, steps - 1) : every * from_to(random, 1, evaluations);
    if (cut >= steps) continue;
    const fs::path parts = folder.path() / "parts";
    Told told;
    const bool has_patience = random() % 2 == 0;
    INFO((fails ? "fails after " : "cut after ")
         << cut << " of " << steps << ", patience before " << has_patience);
    RunPart first{.has_patience = has_patience};
    (fails ? first.fails_after : first.ends_after) = cut;
    if (fails) {
      CHECK_THROWS_AS(run_part(text, data, parts, first, told), Error);
    } else {
      run_part(text, data, parts, first, told);
    }
    run_part(text, data, parts, {.goes_on = true}, told);
    CHECK(result_in(parts) == result_in(whole));
    CHECK(tensors_of(checkpoints_of(parts) / "latest") ==
          tensors_of(checkpoints_of(whole) / "latest"));
    CHECK(said_in(checkpoints_of(parts) / "latest") == said_in(checkpoints_of(whole) / "latest"));
    CHECK(fs::exists(checkpoints_of(parts) / "best") == fs::exists(checkpoints_of(whole) / "best"));
    // The first part's end has a line and an evaluation of the test set of its own.
    auto losses = losses_in(parts);
    if (!losses_in(whole).contains(cut)) losses.erase(cut);
    CHECK(losses == losses_in(whole));
    if (!fails) {
      std::erase(told, str("test after ", cut));
      std::erase(expected, str("test after ", cut));
    }
    CHECK(told == expected);
  }
  CHECK(ended_early > 0);
}

}  // namespace lockstep
