#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <future>
#include <map>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "framework/base/non_copyable.h"

namespace lockstep {

/// Writes report.html of a run into its folder: beside the training, in a thread of its own, and at
/// its end. Where it can't be written, one warning says so, and the run goes on. One thread; only
/// the replica that writes metrics has one.
class RunReport : private NonCopyable {
 public:
  explicit RunReport(std::filesystem::path run) : run_(std::move(run)) {}

  /// What the report shows of a set's last evaluation: a JSON object, which the next report has in
  /// a file of its own beside it (kEvaluationFiles).
  void note_evaluation(const std::string& set, const nlohmann::ordered_json& record);
  /// Begins to write what the folder has now, with `status` as what has become of the run. Does
  /// nothing while the last one is still being written, and for 49 times as long as that has
  /// taken: a run of a million lines spends a fiftieth of one core on its reports at most.
  void begin(const std::string& status);
  /// Writes the last one, once an earlier one is written. Without a status: that of the folder.
  void finish(const std::string& status = {});

 private:
  using Clock = std::chrono::steady_clock;

  using Files = std::map<std::string, std::string>;  // texts by names

  // Returns when the next one may begin.
  Clock::time_point write(const std::string& status, const Files& evaluations);
  void warn(const std::exception& error);

  std::filesystem::path run_;
  Files evaluations_;        // that are to be written
  bool has_failed_ = false;  // of the thread that writes
  Clock::time_point next_{};
  std::future<Clock::time_point> writing_;  // its destructor waits: it uses the others
};

}  // namespace lockstep
