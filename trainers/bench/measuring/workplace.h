#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/types.h>

#include "framework/base/non_copyable.h"
#include "framework/replicas/stop_signals.h"
#include "trainers/bench/systems/system.h"
#include "trainers/bench/testing/temporary_folder.h"

namespace lockstep::bench {

using replicas::Stopped;  // thrown where the driver waits

/// How a program ended.
struct ProgramEnd {
  bool silent = false;  ///< it said nothing for kSilence, and was killed
  int status = 0;       ///< as waitpid() has it
  std::string output;   ///< all that it printed

  /// What it printed last: of a program that failed, the reason.
  [[nodiscard]] std::string last_line() const;
};

/// The driver's surroundings, one object in a process: a temporary folder that only this user can
/// open, the signals that end the measurement, and all processes below this one. Its destructor
/// kills and reaps those that still run, even if other processes have started them.
class Workplace : private NonCopyable {
 public:
  /// A program that says nothing for so long has failed.
  static constexpr std::chrono::seconds kSilence{120};

  Workplace();
  ~Workplace();

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_.path(); }
  /// poll() that throws Stopped when a signal comes, and returns 0 after kSilence. Pauses of this
  /// process do not count.
  [[nodiscard]] int wait_for(std::vector<pollfd>& polled) const;
  /// Starts a program and waits for its end. Calls `look` with all of its output whenever it has
  /// printed more.
  ProgramEnd run(
      const Program& program,
      const std::function<void(const std::string& output)>& look = [](const std::string&) {}) const;

 private:
  replicas::StopSignals signals_;
  testing::TemporaryFolder folder_;
};

/// A file or folder that comes with bench: `built` is its path from the binary's folder in a build,
/// `installed` that from the prefix.
[[nodiscard]] std::filesystem::path file_of_bench(const std::filesystem::path& built,
                                                  const std::filesystem::path& installed);

/// Starts a program in a process group of its own (Ctrl-C is for the driver), without input and
/// with stdout and stderr to `output`. It gets SIGTERM when this process ends. A program that
/// cannot be run writes an error to `output` and ends with status testing::kNotRun. Throws Error if
/// no process can be made.
[[nodiscard]] pid_t start(const Program& program, int output);

}  // namespace lockstep::bench
