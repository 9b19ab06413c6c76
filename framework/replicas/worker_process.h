#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep {

// One replica as a process: how the launcher starts it, and what it does.

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool open() const noexcept { return fd_ >= 0; }
  int release() noexcept;
  void close() noexcept;

 private:
  int fd_;
};

/// A started replica and the launcher's ends of what connects them.
struct ReplicaProcess {
  std::int64_t index;
  pid_t pid;
  Descriptor store;   ///< requests of its SocketStore
  Descriptor report;  ///< how its function ended: see report_text
  Descriptor out;     ///< its stdout; closed for replica 0, which has the launcher's
  Descriptor err;     ///< its stderr
};

/// What a started replica was given.
struct ReplicaPlace {
  std::int64_t index;
  std::int64_t size;
  int store;
  int report;
  int memory;  ///< the job's HostMemory
};

/// Where this process is a replica that was started anew, and this is the call of launch() that it
/// was started for: its place.
[[nodiscard]] std::optional<ReplicaPlace> inherited_place(std::int64_t call);

/// Whether this process was started for a call of launch() after `call`.
[[nodiscard]] bool started_for_later_call(std::int64_t call);

/// Starts replica `index` of `size` for call number `call` of launch(): forked into `run`, which
/// does not return, if this process has one thread, started anew otherwise. `memory` is as in its
/// place. `earlier` are those whose descriptors a fork must not keep. Throws CommError if the
/// system refuses.
[[nodiscard]] ReplicaProcess start_replica(std::int64_t index, std::int64_t size, std::int64_t call,
                                           int memory, const std::vector<ReplicaProcess>& earlier,
                                           const std::function<void(const ReplicaPlace&)>& run);

/// How a replica's function ended, as it travels to the launcher.
struct Report {
  bool done = false;    ///< it returned
  std::string type;     ///< of the error that it threw
  std::string message;  ///< likewise
};
void send_report(int descriptor, const Report& report) noexcept;
[[nodiscard]] std::optional<Report> parse_report(const std::string& text);

}  // namespace lockstep
