#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/data.h"
#include "framework/optim/optimizer_options.h"
#include "framework/optim/schedule.h"
#include "models/model_options.h"
#include "trainers/strict_yaml.h"

namespace lockstep {

/// Who runs the job, as a config's `parallel` section says it.
struct ParallelOptions {
  int replicas = 1;
  int workers = 0;                   ///< how many of them run at once; 0: all
  std::string launch = "processes";  ///< or "threads"
  std::string axis_name = "data";
  std::string backend = "auto";  ///< how replicas pass their bytes on; or "gloo"
  int threads_per_replica = 0;   ///< math threads; 0: the host's cores / replicas, at least 1
  double timeout_s = 60;         ///< how long a replica waits for another
  int zero_stage = 0;
  double bucket_mb = 25;                 ///< of gradients that travel together
  std::string overlap = "auto";          ///< of reductions and backward; or "on", "off"
  std::string compression = "none";      ///< of gradients that travel; or "bf16"
  bool reduce_every_microbatch = false;  ///< or each replica sums its own microbatches first

  bool operator==(const ParallelOptions&) const = default;
};

/// How long and how a job trains, as a config's `trainer` section says it.
struct TrainerOptions {
  std::optional<std::int64_t> epochs = 1;  ///< either these …
  std::optional<std::int64_t> steps;       ///< … or these: exactly one has a value
  std::uint64_t seed = 0;
  std::int64_t accumulate = 1;       ///< microbatches a replica and step
  std::string precision = "fp32";    ///< of forward and backward; or "bf16"
  std::string non_finite = "stop";   ///< when loss or gradients are not finite; or "skip"
  std::int64_t check_every = 0;      ///< steps: do replicas agree? 0: never
  std::optional<double> clip_norm;   ///< the gradients' largest global norm; none: no clipping
  std::optional<double> clip_value;  ///< the gradients' largest value; none: no clipping
  std::int64_t log_every = 20;       ///< steps
  std::int64_t eval_every = 0;       ///< steps; 0: only at the end, where it is done in any case

  bool operator==(const TrainerOptions&) const = default;
};

/// All that `train` is told about a job. Options that don't belong to the chosen model, data set,
/// optimizer or schedule have their defaults.
struct Config {
  ModelOptions model;
  DataOptions data;
  std::int64_t batch_size = 64;  ///< samples a replica and microbatch
  bool shuffle = true;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ParallelOptions parallel;
  TrainerOptions trainer;
  /// Where the patterns of optimizer.groups were written, as messages begin; not compared.
  std::vector<std::string> group_places;
  std::string warmup_place;  ///< of schedule.warmup_steps, likewise

  friend bool operator==(const Config& a, const Config& b);
};

/// The config in `file`, with `overrides` winning over it (later ones over earlier ones; setting
/// one of trainer.epochs and trainer.steps removes the file's other). DataError if the file cannot
/// be read or is longer than 256 KiB. ValueError for everything that is not understood, not of the
/// right type or impossible, the first such as "file:line:column: message" or "--flag as written:
/// message".
[[nodiscard]] Config load_config(const std::filesystem::path& file,
                                 const std::vector<Override>& overrides = {});

/// The same of a file's `text`, which messages call `name`.
[[nodiscard]] Config parse_config(const std::string& text, const std::string& name,
                                  const std::vector<Override>& overrides = {});

/// The resolved config: every key that applies, with its value. parse_config gives an equal Config.
[[nodiscard]] std::string to_yaml(const Config& config);

}  // namespace lockstep
