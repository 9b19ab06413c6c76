#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <sys/types.h>

#include "framework/base/non_copyable.h"
#include "framework/launch/launch.h"
#include "tests/support/programs.h"

namespace lockstep::testing {

inline constexpr LaunchMode kModes[] = {LaunchMode::processes, LaunchMode::threads};

/// Numbers that this process shares with its forks, all 0 at first.
class SharedNumbers : private NonCopyable {
 public:
  explicit SharedNumbers(std::size_t count);
  ~SharedNumbers();

  [[nodiscard]] std::atomic<std::int64_t>& operator[](std::size_t index) const;
  /// Returns how many numbers are not 0.
  [[nodiscard]] std::size_t set() const;
  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  std::atomic<std::int64_t>* numbers_;
  std::size_t count_;
};

/// Forks a process that launches `replica` and exits with launch()'s status. If launch() throws,
/// the process logs the error with its type and exits with the error's status.
[[nodiscard]] std::function<int()> launching(std::function<void()> replica, LaunchOptions options);
/// Does the same, and waits for the end.
[[nodiscard]] Ended launched(const std::function<void()>& replica, const LaunchOptions& options);

/// Returns the options that tell a test's jobs apart: "3 replicas, 2 workers, threads, gloo".
[[nodiscard]] std::string text_of(const LaunchOptions& options);
/// Checks that the job ends well. A failure shows the job's options, and all that it has written.
void check_launched(const std::function<void()>& replica, const LaunchOptions& options,
                    std::source_location where = std::source_location::current());
/// Runs the job with a launcher for each of `hosts` hosts, all on this machine, the one of
/// options.hosts.rank first. `started` is called after each start, with all launchers so far.
[[nodiscard]] std::vector<Ended> launched_on_hosts(
    const std::function<void()>& replica, const LaunchOptions& options, std::int64_t hosts,
    const std::function<void(const std::vector<std::unique_ptr<ChildProgram>>& launchers)>&
        started = {});

/// Returns the message of the ValueError with which launch() refuses the options.
[[nodiscard]] std::string refusal_of(const LaunchOptions& options);

/// Returns the last error on stderr, to the end of stderr.
[[nodiscard]] std::string last_words(const Ended& ended);
/// Returns true if all of these processes are gone.
[[nodiscard]] bool all_ended(const SharedNumbers& pids);
/// Returns the one of `workers` workers that has replica `replica` of `replicas`.
[[nodiscard]] std::int64_t worker_of(std::int64_t replica, std::int64_t replicas,
                                     std::int64_t workers);

/// Returns this replica's index on "data", as an index for SharedNumbers.
[[nodiscard]] std::size_t own_index();
/// Blocks in a psum over "data" that completes when every replica takes part.
void meet();
/// Blocks until a signal ends the process.
[[noreturn]] void block();
/// Returns milliseconds on a clock that all processes of the host share.
[[nodiscard]] std::int64_t now_ms();

}  // namespace lockstep::testing
