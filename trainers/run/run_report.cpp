#include "trainers/run/run_report.h"

#include <utility>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/data/data.h"
#include "framework/storage/file.h"
#include "framework/telemetry/run_folder.h"
#include "trainers/report/report.h"

namespace lockstep {

void RunReport::note_evaluation(const std::string& set, const nlohmann::ordered_json& record) {
  // Names and texts may hold any bytes, JSON only UTF-8.
  evaluations_[kEvaluationFiles[set == kTestSet ? 1 : 0]] =
      record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void RunReport::begin(const std::string& status) {
  if (writing_.valid()) {
    if (writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    next_ = writing_.get();
  }
  if (Clock::now() < next_) return;
  try {
    writing_ = std::async(std::launch::async, [this, status, evaluations = evaluations_] {
      return write(status, evaluations);
    });
    evaluations_.clear();
  } catch (const std::exception& error) {  // there may be no thread to be had
    warn(error);
  }
}

void RunReport::finish(const std::string& status) {
  if (writing_.valid()) writing_.wait();
  (void)write(status, std::exchange(evaluations_, {}));
}

RunReport::Clock::time_point RunReport::write(const std::string& status, const Files& evaluations) {
  const auto begin = Clock::now();
  try {
    for (const auto& [name, text] : evaluations) write_file_atomically(run_ / name, text);
    report::write_report(run_, run_ / kReportFile, status);
  } catch (const std::exception& error) {
    warn(error);
  }
  const auto end = Clock::now();
  return end + 49 * (end - begin);
}

void RunReport::warn(const std::exception& error) {
  if (std::exchange(has_failed_, true)) return;
  log_warning(str("the run's report can't be written (said once): ", error.what()));
}

}  // namespace lockstep
