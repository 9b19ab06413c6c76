#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "framework/base/cores.h"
#include "framework/data/data.h"
#include "trainers/config/config.h"
#include "trainers/run/evaluate.h"

namespace lockstep {

// Hints of a run: lines for people who may not see why it says little, or goes badly. An empty text
// is no hint.

/// Says that keys such as trainer.eval_every, if the config has them, are larger than the run's
/// number of steps, so that it has a log line, an evaluation or a checkpoint only at its end.
[[nodiscard]] std::string late_text(const Config& config, std::int64_t steps);

/// Says how many of the model's parameters are trained, and whose weights it begins with. Empty for
/// a config that freezes none and names no file of weights. `goes_on`: the run has its weights from
/// a checkpoint.
[[nodiscard]] std::string parameters_text(const Config& config, const SampleType& sample,
                                          bool goes_on);

/// Says that a table's targets are far from 1 in size and are not normalized, if the model has a
/// larger loss on `set` than the targets' mean would have.
[[nodiscard]] std::string scale_text(const Objective& objective, const DataSets& data,
                                     const std::string& set, const Figures& figures);

/// Says that other programs take the cores of the math threads, which wait for one another. `time`
/// is what this process' threads had in `seconds`. Empty if threads of its own take the cores, such
/// as those that make batches: all its threads together then run as long as math threads could.
[[nodiscard]] std::string busy_text(const CoreTime& time, double seconds,
                                    std::int64_t math_threads);

/// Looks once, a few seconds after it was made, whether others take the cores.
class CoresWatch {
 public:
  explicit CoresWatch(std::int64_t math_threads) : math_threads_(math_threads) {}

  /// busy_text() when the time has come, and an empty text before and after.
  [[nodiscard]] std::string text();

 private:
  std::int64_t math_threads_;
  bool has_looked_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  CoreTime before_ = core_time();
};

}  // namespace lockstep
