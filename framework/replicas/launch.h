#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

enum class LaunchMode { processes, threads };

/// How replicas pass their bytes on: `automatic` is memory that they share, since they are on one
/// host; `gloo` is TCP on loopback. The results have the same bits.
enum class Backend { automatic, gloo };

struct LaunchOptions {
  std::int64_t replicas = 1;
  LaunchMode mode = LaunchMode::processes;
  Backend backend = Backend::automatic;
  /// The name by which the function's collectives call the replicas.
  std::string axis_name = "data";
  /// Math threads of each replica; 0: the host's cores / its replicas, at least 1.
  std::int64_t threads_per_replica = 0;
  /// How long a replica waits for the others, when connecting and in a collective.
  std::chrono::milliseconds timeout{60'000};
};

/// Runs `replica` once a replica on this host, all at the same time and with the axis bound, and
/// returns the status with which the program should end:
///
///   int main() { return lockstep::launch(train, {.replicas = 4}); }
///
///   0    every replica's function has returned
///   1    a replica threw, 2 if it was a ValueError or DataError, 3 if a CommError
///   3    a replica's process died
///   130  Ctrl-C (SIGINT), 143 SIGTERM
///
/// What went wrong is the last thing on stderr: which replica, its process, its exit status or
/// signal and its last lines; the root cause, not the replicas that failed because of it. The
/// others end within 2 seconds. ValueErrors about the options are thrown.
///
/// Processes are children of this one. They are forked if that is safe, which is while this process
/// has one thread; otherwise the program is started again with its arguments, and becomes a replica
/// where it calls launch() for the same time (calls before that return 0 at once). Children end
/// with this process, however it ends. Replica 0 writes to this process' stdout and stderr; lines
/// of others gain
/// "[replica 1] ". Threads write as they are. What runs (replicas, math threads, LibTorch, BLAS) is
/// told on stderr first, unless set_quiet() (base/logging.h) is on.
[[nodiscard]] int launch(const std::function<void()>& replica, const LaunchOptions& options = {});

}  // namespace lockstep
