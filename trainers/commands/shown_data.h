#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/data/data.h"
#include "framework/telemetry/progress.h"
#include "trainers/config/config.h"

namespace lockstep {

/// Shows how far a search for damaged files is: on a terminal a bar of samples, elsewhere a line a
/// minute. It must outlive its searches. For one thread.
class ShownSearch {
 public:
  /// With `quiet` nothing is shown at all. The stream must outlive this object.
  ShownSearch(std::FILE* stream, bool quiet) : progress_(stream, quiet) {}

  /// This search with that progress.
  [[nodiscard]] DamageSearch of(DamageSearch search);
  /// Prints a line; on a terminal above the bar.
  void print(std::string_view line) { progress_.print(line); }

 private:
  using Clock = std::chrono::steady_clock;
  void note(std::int64_t done, std::int64_t samples);

  Progress progress_;
  std::jthread ticks_ = progress_ticks(progress_);
  Clock::time_point begin_ = Clock::now();  // of this set's search
  std::int64_t last_ = 0;                   // samples done
};

/// load_data(), which may look for damaged files first: then its progress is shown on stderr.
[[nodiscard]] DataSets load_shown(const keys::Picked& picked, DataContext context,
                                  bool quiet = false);

/// The sets that flags --split name; each must be train, validation or test: ValueError.
[[nodiscard]] WantedSets wanted_sets(const std::vector<std::string>& splits);

/// What a run's source has decided, as describe() says it, and how many steps an epoch has, each
/// line after "data: ".
[[nodiscard]] std::vector<std::string> data_lines(const Config& config, const DataSets& data);

}  // namespace lockstep
