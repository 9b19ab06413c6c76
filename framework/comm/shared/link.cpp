#include "framework/comm/shared/link.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"

namespace lockstep {
namespace {

// Between two looks at whether something has ended a wait.
constexpr std::chrono::milliseconds kSlice{10};
// How long a replica that comes later than this one is looked out for before it is worth a system
// call: about 3 microseconds on a core of its own, then for longer than a sleeper takes to wake on
// one that others may have meanwhile. Two that take turns in waking each other would do nothing
// else.
constexpr int kSpins = 100;
constexpr std::chrono::microseconds kYielding{100};

std::string process_key(int rank) {
  return str("process/", rank);
}

int usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// A descriptor that can be read from when the process has ended.
int open_process(int rank, pid_t pid) {
  if (pid == ::getpid()) return -1;
  const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (descriptor >= 0) return descriptor;
  if (errno == ESRCH) throw ReplicaLost(str("replica ", rank, " (pid ", pid, ") has ended"));
  throw CommError(str("replica ", rank, " (pid ", pid, ") cannot be watched: pidfd_open: ",
                      std::strerror(errno), "; Linux 5.3 or newer is needed"));
}

}  // namespace

SharedLink::SharedLink(std::shared_ptr<HostMemory> memory, Store& store, int rank, int size,
                       const ConnectOptions& options)
    : memory_(std::move(memory)),
      rank_(rank),
      timeout_(options.timeout),
      has_own_core_(size <= usable_cores()) {
  if (size == 1) return;
  store.set(process_key(rank), std::to_string(::getpid()));
  try {
    for (int peer = 0; peer < size; ++peer) {
      const std::string pid = store.get(process_key(peer), options.connect_timeout);
      processes_.push_back(open_process(peer, std::stoi(pid)));
    }
  } catch (...) {
    for (const int process : processes_) ::close(process);
    throw;
  }
}

SharedLink::~SharedLink() {
  for (const int process : processes_) {
    if (process >= 0) ::close(process);
  }
}

void SharedLink::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  abort_reason_ = reason;
  aborted_ = true;
}

void SharedLink::interrupt(User& user, const std::exception_ptr& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (user.ended) return;
  user.error = error;
  user.ended = true;
}

void SharedLink::check(const User& user) {
  if (!user.ended && !aborted_) return;
  const std::lock_guard lock(mutex_);
  if (user.error) std::rethrow_exception(user.error);
  throw Aborted(abort_reason_);
}

int SharedLink::lost_one_of(const std::vector<int>& group) const {
  for (const int member : group) {
    pollfd process{processes_[static_cast<std::size_t>(member)], POLLIN, 0};
    if (process.fd >= 0 && ::poll(&process, 1, 0) > 0) return member;
  }
  return -1;
}

void SharedLink::wait(const User& user, const Flag& flag, std::uint32_t round, int peer,
                      const std::vector<int>& group, bool same_core) {
  const Flag::Patience patience{.spins = has_own_core_ ? kSpins : 0, .yielding = kYielding};
  // Two on one core, though there is one for each: who sleeps is put on a free one when it wakes.
  const bool should_move = has_own_core_ && same_core;
  if (!should_move && flag.wait(round, patience, std::chrono::nanoseconds(0))) return;
  Waited waited;
  while (!flag.wait(round, {}, kSlice)) {
    check(user);
    const int lost = lost_one_of(group);
    // What it did before it ended counts.
    if (lost >= 0 && !flag.reached(round)) {
      throw ProcessEnded(
          str("replica ", rank_, " lost replica ", lost, ", whose process has ended"));
    }
    if (waited.look() >= timeout_) {
      throw Timeout(str("replica ", rank_, " waited ", timeout_.count(), " ms for replica ", peer,
                        ", which did not arrive"));
    }
  }
}

}  // namespace lockstep
