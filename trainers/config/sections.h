#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "framework/keys/key.h"
#include "framework/launch/launch.h"
#include "framework/objectives/metric.h"
#include "framework/training/zero_options.h"

namespace lockstep {

// What only `train` needs of a config: variables, and behind them their keys. A new key is both.

namespace keys {

// What a step takes, over all microbatches and replicas, fits in 63 bits.
inline const Rule<std::int64_t> kTrillion = from_to<std::int64_t>(1, 1'000'000'000'000);

inline const KeyTraits kMayChange{.may_change = true};

}  // namespace keys

/// The weights with which a run begins.
struct InitOptions {
  std::optional<std::string> from;  ///< a file, as Weights reads it; none: the model's own weights
  bool strict = true;               ///< the file has all of the model's names and no others
  std::vector<std::string> except{};  ///< patterns for those that keep the model's own values
};

[[nodiscard]] inline keys::ConfigKeys init_keys(InitOptions& init) {
  const auto strict_problem = [&init] {
    return !init.strict && !init.from ? "without model.init_from must be true" : "";
  };
  const auto except_problem = [&init] {
    return !init.except.empty() && !init.from ? "has nothing to leave out without model.init_from"
                                              : "";
  };
  const keys::KeyTraits strict{.problem = strict_problem, .others = {"init_from"}};
  const keys::KeyTraits except{.problem = except_problem, .others = {"init_from"}};
  return {
      {"init_from", text_or_null(init.from, keys::of_length("a file's path", PATH_MAX - 1)),
       "weights to begin with: a safetensors file, its index, or a checkpoint's folder"},
      {"init_from_strict", keys::flag(init.strict),
       "refuse weights if names are missing there or in the model", strict},
      {"init_from_except",
       list(init.except, keys::of_length("a pattern for parameters' names", 1000)),
       "patterns (*.bias) for what keeps the model's own first values: a head for other classes",
       except},
  };
}

/// What of the data set a run takes, and how.
struct DataUse {
  std::int64_t batch_size = 64;  ///< samples a replica and microbatch
  bool shuffle = true;
  bool drop_last = false;   ///< see SamplerOptions
  double validation = 0.0;  ///< see DataContext::validation
  std::optional<std::int64_t>
      threads;  ///< a replica, that make batches ahead; none: one where it is_slow()
};

[[nodiscard]] inline keys::ConfigKeys data_use_keys(DataUse& use) {
  const keys::KeyTraits batch_size{.defaults = {{"pmean_example", "4"}},  // its samples a replica
                                   .may_change = true};
  return {
      {"batch_size", number(use.batch_size, keys::kBillion), "samples a replica and microbatch",
       batch_size},
      {"shuffle", keys::flag(use.shuffle), "draw a new order of the samples for each epoch"},
      {"drop_last", keys::flag(use.drop_last),
       "leave out an epoch's last samples, if they are fewer than a step takes"},
      {"validation", number(use.validation, keys::kPartBelow1),
       "the part of the training set that becomes the validation set, if the source has none"},
      {"threads", number_or_auto(use.threads, keys::from_to<std::int64_t>(0, 64)),
       "threads a replica that make batches ahead; auto: one where pictures are decoded, else none",
       keys::kMayChange},
  };
}

/// The types of numbers in forward and backward: AutocastScope's, or all float32.
enum class Precision { fp32, bf16 };

/// What only the trainer needs of a config's `trainer` section.
struct TrainerOptions {
  std::optional<std::int64_t> epochs = 1;  ///< the run's length …
  std::optional<std::int64_t> steps;       ///< … in one of three units: …
  std::optional<std::int64_t> samples;     ///< … exactly one has a value
  /// Samples a step, of all replicas together, in place of ZeroOptions::accumulate.
  std::optional<std::int64_t> global_batch;
  Precision precision = Precision::fp32;
  std::int64_t check_every = 0;
  std::int64_t log_every = 20;
  std::int64_t eval_every = 0;
  std::vector<std::string>
      metrics;  ///< of evaluations, beside the loss; empty: accuracy for classes
  /// Evaluations of the validation set in a row without a better figure, after which a run ends.
  std::optional<std::int64_t> patience;
  std::vector<std::string> freeze;  ///< patterns for parameters that are not trained
};

/// The trainer has options of ZeroOptions, too.
[[nodiscard]] inline keys::ConfigKeys trainer_keys(TrainerOptions& trainer, ZeroOptions& zero,
                                                   const LaunchOptions& launch) {
  const auto instead_of = [](const std::string& one, const std::string& other) {
    return keys::KeyTraits{.instead_of = {one, other}, .may_change = true};
  };
  const auto batch_problem = [&trainer, &launch] {
    if (*trainer.global_batch % launch.replicas == 0) return std::string();
    return str("must be a multiple of parallel.replicas, which is ", launch.replicas, "; is ",
               *trainer.global_batch);
  };
  // One of the two is printed: the other would be refused beside it.
  keys::Value accumulate = number(zero.accumulate, kAccumulateRule);
  accumulate.print = [&zero, &trainer] {
    return trainer.global_batch ? "" : keys::yaml_text(zero.accumulate);
  };
  return {
      {"epochs", number_instead(trainer.epochs, keys::kBillion),
       "the run's length in passes over the data", instead_of("steps", "samples")},
      {"steps", number_instead(trainer.steps, keys::kBillion), "the run's length in updates",
       instead_of("epochs", "samples")},
      {"samples", number_instead(trainer.samples, keys::kTrillion),
       "the run's length in samples of all replicas, with those that data.drop_last leaves out; "
       "the step that reaches them is the last",
       instead_of("epochs", "steps")},
      {"seed", number(zero.seed, keys::at_least<std::uint64_t>(0)), "seed of all that is random"},
      {"accumulate",
       accumulate,
       "microbatches a replica and step",
       {.instead_of = {"global_batch"}, .may_change = true}},
      {"global_batch",
       number_instead(trainer.global_batch, keys::kBillion),
       "samples a step of all replicas, in as many microbatches as they need",
       {.instead_of = {"accumulate"}, .problem = batch_problem, .may_change = true}},
      {"precision", keys::one_of(trainer.precision, {"fp32", "bf16"}),
       "type in which forward and backward compute"},
      {"non_finite", keys::one_of(zero.non_finite, {"stop", "skip"}),
       "where the loss or a gradient is not finite, stop the run or skip the step"},
      {"check_every", number(trainer.check_every, keys::kNatural),
       "after each so many steps replicas compare their parameters; 0: never", keys::kMayChange},
      {"clip_norm", number_or_null(zero.clip_norm, kClipRule),
       "largest norm that the gradients may have; null: any"},
      {"clip_value", number_or_null(zero.clip_value, kClipRule),
       "largest value that a gradient may have; null: any"},
      {"ema_decay", number_or_null(zero.ema_decay, kEmaDecayRule),
       "decay of an average of the parameters, with which evaluations compute; null: none"},
      {"ema_warmup", keys::flag(zero.ema_warmup),
       "update t, from 0, of the average decays by (1 + t) / (10 + t) while that is less"},
      {"log_every", number(trainer.log_every, keys::kBillion), "steps between lines of metrics",
       keys::kMayChange},
      {"eval_every", number(trainer.eval_every, keys::kNatural),
       "steps between evaluations; there is one at the end, with 0 only that", keys::kMayChange},
      {"metrics", list(trainer.metrics, keys::of_length("a metric's name", 100)),
       str("figures of evaluations beside the loss: ", join(metric_registry().names()),
           "; []: accuracy for classes"),
       keys::kMayChange},
      {"patience", number_or_null(trainer.patience, keys::kBillion),
       "evaluations in a row in which checkpoint.best (none: the loss) does not get better, after "
       "which the run ends; null: it does not. checkpoint.best keeps the best weights, too",
       keys::kMayChange},
      {"freeze", list(trainer.freeze, keys::of_length("a pattern for parameters' names", 1000)),
       "names of parameters that are not trained; patterns as in a shell (\"*.bias\")"},
  };
}

/// What `train` saves, and what a failure of that means.
struct CheckpointOptions {
  enum class Save { state, none };
  enum class OnError { stop, warn };
  Save save = Save::state;
  std::int64_t every = 0;  ///< steps between checkpoints; 0: only the final one
  std::int64_t keep = 3;
  bool async = true;
  OnError on_error = OnError::stop;
  std::string best = "none";  ///< the figure of the validation set by which one is the best

  [[nodiscard]] bool saves() const { return save != Save::none; }
};

[[nodiscard]] inline keys::ConfigKeys checkpoint_keys(CheckpointOptions& checkpoint) {
  const keys::KeyTraits short_form{.may_change = true, .is_short_form = true};
  return {
      {"save", keys::one_of(checkpoint.save, {"state", "none"}),
       "what a run leaves: all that it needs to go on, or nothing", short_form},
      {"every", number(checkpoint.every, keys::kNatural),
       "steps between checkpoints; there is one at the end, with 0 only that", keys::kMayChange},
      {"keep", number(checkpoint.keep, keys::kMillion), "how many of the newest remain",
       keys::kMayChange},
      {"async", keys::flag(checkpoint.async), "write beside the training", keys::kMayChange},
      {"on_error", keys::one_of(checkpoint.on_error, {"stop", "warn"}),
       "where one can't be saved, stop the run or go on with a warning", keys::kMayChange},
      {"best", text(checkpoint.best, keys::of_length("none or a metric's name,", 100)),
       "the figure of the validation set by which the best one is kept, too", keys::kMayChange},
  };
}

/// What a run writes for people beside its metrics.
struct TelemetryOptions {
  bool tensorboard = true;
  std::int64_t histograms = 0;  ///< steps between them; 0: none
  bool report = true;
  bool operators = false;           ///< LibTorch's, too, are spans of traces
  std::vector<std::int64_t> trace;  ///< the first and the last step of a trace; empty: none
};

[[nodiscard]] inline keys::ConfigKeys telemetry_keys(TelemetryOptions& telemetry) {
  keys::Value trace = list(telemetry.trace, keys::at_least<std::int64_t>(1));
  trace.samples = [] { return keys::Samples{{"[100, 110]", "[]"}, {"[0, 5]", "[1.5, 2]"}}; };
  const auto trace_problem = [&telemetry] {
    const auto& steps = telemetry.trace;
    const bool fits = steps.empty() || (steps.size() == 2 && steps[0] <= steps[1]);
    return fits ? "" : "must be the first and the last step, as [100, 110], or []";
  };
  return {
      {"tensorboard", keys::flag(telemetry.tensorboard),
       "write event files, which TensorBoard shows, beside metrics.jsonl", keys::kMayChange},
      {"histograms", number(telemetry.histograms, keys::kNatural),
       "steps between histograms of parameters and gradients in event files; 0: none",
       keys::kMayChange},
      {"trace",
       trace,
       "the first and the last step of which trace.json is written, a timeline of all replicas",
       {.problem = trace_problem, .may_change = true}},
      {"operators", keys::flag(telemetry.operators),
       "record LibTorch's operators by name, too, for traces", keys::kMayChange},
      {"report", keys::flag(telemetry.report),
       "write report.html, a page for browsers, at each checkpoint and at the end",
       keys::kMayChange},
  };
}

}  // namespace lockstep
