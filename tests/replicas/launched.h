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
#include "framework/replicas/launch.h"
#include "tests/support/programs.h"

namespace lockstep::testing {

inline constexpr LaunchMode kModes[] = {LaunchMode::processes, LaunchMode::threads};

/// Numbers that this process shares with those that it forks, all 0 at first.
class SharedNumbers : private NonCopyable {
 public:
  explicit SharedNumbers(std::size_t count);
  ~SharedNumbers();

  [[nodiscard]] std::atomic<std::int64_t>& operator[](std::size_t index) const;
  /// How many are not 0.
  [[nodiscard]] std::size_t set() const;
  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  std::atomic<std::int64_t>* numbers_;
  std::size_t count_;
};

/// Forks a process that launches `replica` and exits with launch()'s status; of an error, with that
/// of the error, which it logs with its type.
[[nodiscard]] std::function<int()> launching(std::function<void()> replica, LaunchOptions options);
/// The same, to its end.
[[nodiscard]] Ended launched(const std::function<void()>& replica, const LaunchOptions& options);

/// The options that tell the jobs of a test apart, as "3 replicas, 2 workers, threads, gloo".
[[nodiscard]] std::string text_of(const LaunchOptions& options);
/// Checks that the job ends well. A failure shows its options, and all that it has written.
void check_launched(const std::function<void()>& replica, const LaunchOptions& options,
                    std::source_location where = std::source_location::current());
/// The same job with a launcher for each of `hosts` hosts, all of them on this machine. The one of
/// options.hosts.rank starts first. `started` is called after each start, with all so far.
[[nodiscard]] std::vector<Ended> launched_on_hosts(
    const std::function<void()>& replica, const LaunchOptions& options, std::int64_t hosts,
    const std::function<void(const std::vector<std::unique_ptr<ChildProgram>>& launchers)>&
        started = {});

/// The message of the ValueError with which launch() refuses them.
[[nodiscard]] std::string refusal_of(const LaunchOptions& options);

/// What it wrote last on stderr that is an error, to the end.
[[nodiscard]] std::string last_words(const Ended& ended);
/// Whether all of these processes are gone.
[[nodiscard]] bool all_ended(const SharedNumbers& pids);
/// Which of `workers` has replica `replica` of `replicas`.
[[nodiscard]] std::int64_t worker_of(std::int64_t replica, std::int64_t replicas,
                                     std::int64_t workers);

/// This replica's index on "data", as an index for SharedNumbers.
[[nodiscard]] std::size_t own_index();
/// Blocks in a psum over "data" that completes when every replica takes part.
void meet();
/// Blocks until a signal ends the process.
[[noreturn]] void block();
/// Milliseconds on a clock that all processes of the host share.
[[nodiscard]] std::int64_t now_ms();

}  // namespace lockstep::testing
