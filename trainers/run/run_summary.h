#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/non_copyable.h"
#include "framework/telemetry/metrics.h"
#include "framework/telemetry/summary_writer.h"
#include "trainers/config/config.h"

namespace lockstep {

/// Writes a run's curves and texts for TensorBoard, in event files beside its metrics.jsonl, on
/// replica 0. If they can't be written, a warning says so once. One thread calls it.
class RunSummary : private NonCopyable {
 public:
  /// Begins a file, with the config as text. What earlier files of the folder have of steps behind
  /// `first_step`, those done before, is no longer shown. `config` must live as long.
  RunSummary(const std::filesystem::path& folder, const Config& config, std::int64_t first_step);

  [[nodiscard]] SummaryWriter& writer() noexcept { return writer_; }

  /// The numbers of a line of metrics. How far the run is, which each line says, is added of those
  /// of logged steps alone: a step may have several lines.
  void add(std::int64_t step, const std::vector<std::pair<std::string, MetricValue>>& line);
  /// Returns why there can be no histogram of the values, the first time for each reason; else "".
  [[nodiscard]] std::string add_histogram(const std::string& tag, const at::Tensor& values,
                                          std::int64_t step);
  /// The run becomes a row of the table of runs, by its config. The figures there are its curves'
  /// last ones.
  void add_config_values(std::int64_t step);

 private:
  const Config& config_;
  SummaryWriter writer_;
  std::set<std::string> told_;
};

/// Cuts what runs have added to a folder since SummaryWriter::place(), for a run that goes on from
/// there: the rest of that file, and their files that began later. Does nothing without that file.
void cut_summary(const std::filesystem::path& folder, const std::string& place);

}  // namespace lockstep
