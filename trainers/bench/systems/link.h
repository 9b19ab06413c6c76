#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::bench {

/// One replica of a measured system, as its worker implements it. All replicas get the same
/// requests in the same order.
class ReplicaTask {
 public:
  virtual ~ReplicaTask() = default;
  /// Makes the buffers of an operation in place of the last one's, calls it once and throws if the
  /// result is wrong. Returns a note for readers of the figures, mostly "".
  [[nodiscard]] virtual std::string prepare(const std::string& operation, std::int64_t bytes) = 0;
  /// Returns when all replicas have called it: at once if this task is all of them.
  virtual void barrier() {}
  /// Runs the operation once.
  virtual void call() = 0;
  /// Waits for what calls in a row have left under way: their time ends here.
  virtual void finish() {}
  /// Seconds of each part of the calls since the last parts(), if the operation has parts.
  [[nodiscard]] virtual std::vector<double> parts() { return {}; }
};

/// Bytes of the line "name:   123 kB" of this process's /proc/self/status: VmRSS, the memory that
/// is resident now; VmHWM, the most since the start or forget_peak().
[[nodiscard]] std::int64_t resident_bytes(const std::string& name);
/// From now on VmHWM is the most since this call, where the kernel allows that.
void forget_peak();

/// Does what the driver (../driver/crew.py) asks of this replica until the driver hangs up. In
/// between it sleeps in read(): a system that waits for its turn takes no time from the one that
/// has it.
///
/// `folder` holds two FIFOs a replica needs, of lines of text: `commands.RANK` from the driver,
/// `answers` to it.
///   prepare OPERATION BYTES   answered by   RANK prepared NOTE
///   run CALLS                 answered by   RANK ran BEGIN END PART ...
///   memory                    answered by   RANK memory PID PEAK SHARE
/// BEGIN and END are this replica's, in nanoseconds of CLOCK_MONOTONIC (std::chrono::steady_clock,
/// Python's time.monotonic_ns), which all processes of a host share. PEAK is the most memory that
/// the process had resident so far (VmHWM), SHARE what it has now, where pages of several processes
/// count in parts (Pss), in KiB. The first line, unasked, is "RANK hello".
void serve(ReplicaTask& task, const std::filesystem::path& folder, std::int64_t rank);

}  // namespace lockstep::bench
