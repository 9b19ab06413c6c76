#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "framework/base/descriptor.h"
#include "framework/base/non_copyable.h"

namespace lockstep::testing {

/// Set in the environment of a fork of a test, whose arguments are the tests' own: a launch that
/// starts "the program" again would run them once more, and so without end. main() refuses it.
inline constexpr const char* kForkVariable = "LOCKSTEP_FORK_OF_A_TEST";

/// How a child program ended.
struct Ended {
  int status = -1;  ///< its exit status, or 128 + the signal that ended it, as a shell has it
  bool by_signal = false;
  std::string out;     ///< all of its stdout …
  std::string err;     ///< … and stderr, without warnings about this machine's BLAS
  double seconds = 0;  ///< from its start to its end
};

/// Forks this process. The child, in a process group of its own, gets `at_end` when this process
/// ends, has an empty stdin, writes to `out` and `err`, and runs `body`, which must not return.
[[nodiscard]] pid_t fork_child(int out, int err, int at_end, const std::function<void()>& body);

/// Turns this process into a program: its path, or a name to be found in PATH, and arguments. A
/// program that cannot be run is an error on stderr and the exit status kNotRun.
inline constexpr int kNotRun = 127;
[[noreturn]] void become(std::vector<std::string> command);

/// A program that runs beside the test, its output kept and its life bounded: the destructor kills
/// it. Orphans of its descendants become the test's own children, so that ended() can reap them.
class ChildProgram : private NonCopyable {
 public:
  /// Starts `command` (path and arguments) in `folder` (empty: the test's own), with stdin empty.
  explicit ChildProgram(const std::vector<std::string>& command,
                        const std::filesystem::path& folder = {});
  /// Forks this process: the child runs `body` and exits with what it returns, or with 99 and the
  /// text on stderr if it throws. Only for processes that have one thread.
  explicit ChildProgram(const std::function<int()>& body);
  ~ChildProgram();

  /// Also the id of its process group, which its children share.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// What it has written so far.
  [[nodiscard]] std::string out() const;
  [[nodiscard]] std::string err() const;
  /// Whether it still runs.
  [[nodiscard]] bool running();

  /// Waits for its end. Throws a std::runtime_error with its output if `deadline` passes first; the
  /// default is for what hangs, not for what is slow beside other programs.
  Ended wait(std::chrono::milliseconds deadline = std::chrono::minutes(5));

 private:
  void start(const std::function<void()>& in_child);

  pid_t pid_ = -1;
  Descriptor out_;
  Descriptor err_;
  std::chrono::steady_clock::time_point began_;
  bool reaped_ = false;
  int wait_status_ = 0;
};

/// Runs a program to its end.
[[nodiscard]] Ended run_program(const std::vector<std::string>& command,
                                const std::filesystem::path& folder = {});

/// Whether `condition` becomes true before the deadline.
[[nodiscard]] bool eventually(const std::function<bool()>& condition,
                              std::chrono::milliseconds deadline = std::chrono::seconds(30));

}  // namespace lockstep::testing
