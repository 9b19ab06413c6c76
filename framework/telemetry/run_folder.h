#pragma once

#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "framework/storage/file.h"

namespace lockstep {

/// Makes the folder of a new run, `parent`/NAME-YYYYMMDD-HHMMSS in local time, and returns its
/// path. If it exists, -2, -3, … is appended. Two runs that start at once never get the same
/// folder. Throws ValueError for a name that is no single path component, and if the folder can't
/// be made.
[[nodiscard]] std::filesystem::path new_run_folder(const std::string& config_name,
                                                   const std::filesystem::path& parent = "runs",
                                                   std::time_t now = std::time(nullptr));

/// While this lock lives, no other run goes on in the folder. The system ends the lock once the
/// process and all replicas forked from it have ended; replicas for which the program was started
/// again do not hold it. Where the folder can't be locked, the constructor only warns.
class RunFolderLock {
 public:
  /// Throws ValueError if another run has the lock, or the folder can't be opened. Replicas of a
  /// run that was killed may take long to end if they write to a slow disk: waits for them up to
  /// `patience`, and says so.
  explicit RunFolderLock(const std::filesystem::path& folder,
                         std::chrono::milliseconds patience = std::chrono::seconds(30));

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return path_; }
  /// Whether this holds a lock. It holds none where the file system can't lock the folder.
  [[nodiscard]] bool is_held() const noexcept { return is_held_; }

 private:
  std::filesystem::path path_;
  bool is_held_ = false;
  std::unique_ptr<File> folder_;
};

/// Whether a run has begun in the folder.
[[nodiscard]] bool holds_run(const std::filesystem::path& folder);

/// Whether a run goes on in the folder: whether another has its lock. Asks by taking a shared lock,
/// which it gives back at once: a run that wants the folder in this moment waits for it, but one
/// that claims it by claim_run_folder() is refused. False where nothing can be locked or opened.
[[nodiscard]] bool run_goes_on_in(const std::filesystem::path& folder);

/// The folder of checkpoints in a run's folder.
inline constexpr const char* kCheckpointsFolder = "checkpoints";
/// What happens to a run beside its steps, a JSON object a line: note_start() and note_stall().
inline constexpr const char* kEventsFile = "events.jsonl";
/// The name of a run's report in its folder.
inline constexpr const char* kReportFile = "report.html";
/// The names of what the report shows of the last evaluations, of the validation and the test set.
inline constexpr std::array<const char*, 2> kEvaluationFiles{"evaluation_validation.json",
                                                             "evaluation_test.json"};

/// Claims `folder` for a new run and writes `config` to its config.yaml. The folder is created with
/// its parents, or exists and holds no run: one that has ended without a line of metrics, a result
/// or a checkpoint is none. Of several runs that claim it at once, one gets it. Throws ValueError
/// if it holds a run or one is going on there, if it has a config.yaml of which `is_of_run` says
/// that no run has written it, is no folder, or can't be written to. Temporary files of a run that
/// was killed here are removed, and event files of one that came to nothing.
RunFolderLock claim_run_folder(const std::filesystem::path& folder, std::string_view config,
                               const std::function<bool(const std::string&)>& is_of_run = {});

/// For a run that goes on in the folder of `lock`, which holds one: its config.yaml becomes
/// `config`, and it has no result.json. Throws ValueError if it can't be written to, or a FIFO, for
/// example, is in place of one of its files.
void reclaim_run_folder(const RunFolderLock& lock, std::string_view config);

}  // namespace lockstep
