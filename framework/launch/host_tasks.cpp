#include "framework/launch/host_tasks.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/poll_set.h"
#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/base/socket.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/engines/local_tasks.h"
#include "framework/launch/long_wait.h"
#include "framework/launch/stop_signals.h"
#include "framework/storage/checksum.h"

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenTries{20};
constexpr const char* kCannotMeet = "the tasks of this host can't meet";
// Longer facts are compared by their beginning and their length.
constexpr std::size_t kMostOfFact = 8192;

// A task's message to task 0.
struct Lent {
  std::int64_t rank = 0;
  CoreSet cores;
  TaskFacts facts;
  LOCKSTEP_FIELDS(rank, cores, facts)
};

struct MeetingPoint {
  sockaddr_un address{};

  // Names a socket in a folder by the folder's descriptor, since the path may be too long.
  MeetingPoint(const Descriptor& folder, const std::string& name) {
    const std::string path = str("/proc/self/fd/", folder.get(), '/', name);
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

std::string name_of_meeting(const engines::Whereabouts& where) {
  storage::Checksum job;  // the job's name may be longer than a file's
  const std::string name = engines::local_job_of(where);
  job.add(std::as_bytes(std::span(name)));
  return job.text();
}

std::string folder_of_meetings() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat its {};
  const bool is_own = runtime != nullptr && *runtime == '/' && ::stat(runtime, &its) == 0 &&
                      its.st_uid == ::geteuid();
  return str(is_own ? runtime : "/tmp", "/lockstep-", ::geteuid());
}

// Returns a closed descriptor if there is no folder. Another user's folder is a CommError.
Descriptor open_folder() {
  const std::string path = folder_of_meetings();
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.open() && errno == ENOENT) return folder;
  require_done<CommError>(folder.open(), kCannotMeet, " in ", path);
  struct stat its {};
  require<CommError>(
      ::fstat(folder.get(), &its) == 0 && its.st_uid == ::geteuid() && (its.st_mode & 077U) == 0,
      kCannotMeet, ": ", path, " is no folder of user ", ::geteuid(),
      " alone (mode 0700): set XDG_RUNTIME_DIR to one");
  return folder;
}

Descriptor make_socket(int flags) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  require_done<CommError>(socket.open(), kCannotMeet, ": no socket");
  return socket;
}

// Returns the process and the user at the other end of a connection.
ucred other_end(const Descriptor& socket) {
  ucred other{};
  socklen_t size = sizeof other;
  require_done<CommError>(::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &size) == 0,
                          "the system does not tell who is at the other end of a socket");
  return other;
}

// Returns a connection, or a closed descriptor if nobody listens there.
Descriptor connected_to(const MeetingPoint& point) {
  Descriptor socket = make_socket(SOCK_NONBLOCK);  // the listener's queue may be full
  if (::connect(socket.get(), point.get(), sizeof point.address) != 0) return Descriptor();
  require_done<CommError>(::fcntl(socket.get(), F_SETFL, 0) == 0, kCannotMeet);
  return socket;
}

// The socket to which the other tasks connect. The destructor leaves nothing of it on the host.
class Listener : private NonCopyable {
 public:
  // Waits for the name, which earlier tasks of this job may use for a moment.
  Listener(std::string name, std::int64_t tasks, milliseconds timeout) : name_(std::move(name)) {
    for (Waited waited; !listens(tasks);) {
      if (waited.look() >= timeout) {
        const Descriptor other = folder_.open() ? connected_to({folder_, name_}) : Descriptor();
        throw CommError(
            str(kCannotMeet, ": ",
                other.open() ? str("process ", other_end(other).pid) : "another process",
                " has their place; --engine none makes each a run of its own"));
      }
      ::poll(nullptr, 0, poll_time(kBetweenTries));
    }
  }
  ~Listener() {
    ::unlinkat(folder_.get(), name_.c_str(), 0);
    ::rmdir(folder_of_meetings().c_str());  // fails if others meet there, too
  }

  [[nodiscard]] int get() const noexcept { return socket_.get(); }

 private:
  bool listens(std::int64_t tasks) {
    const std::string path = folder_of_meetings();
    require_done<CommError>(::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST, kCannotMeet,
                            " in ", path);
    folder_ = open_folder();
    if (!folder_.open()) return false;  // removed meanwhile
    if (::flock(folder_.get(), LOCK_EX | LOCK_NB) != 0) return false;
    // Removes the sockets of killed tasks. Under the lock every other socket has its listener.
    std::error_code ignored;
    for (const auto& left :
         std::filesystem::directory_iterator(str("/proc/self/fd/", folder_.get(), '/'), ignored)) {
      const std::string file = left.path().filename();
      const bool is_open = connected_to({folder_, file}).open();
      if (!is_open && errno == ECONNREFUSED) ::unlinkat(folder_.get(), file.c_str(), 0);
    }
    socket_ = make_socket(SOCK_NONBLOCK);
    const MeetingPoint point(folder_, name_);
    const bool is_bound = ::bind(socket_.get(), point.get(), sizeof point.address) == 0;
    require_done<CommError>(is_bound || errno == EADDRINUSE || errno == ENOENT, kCannotMeet);
    if (is_bound) {
      require_done<CommError>(::listen(socket_.get(), static_cast<int>(tasks)) == 0, kCannotMeet);
    }
    (void)::flock(folder_.get(), LOCK_UN);
    return is_bound;
  }

  std::string name_;
  Descriptor folder_;
  Descriptor socket_;
};

TaskFacts shortened_facts(const TaskFacts& facts) {
  TaskFacts all;
  for (const auto& [name, value] : facts) {
    all[name] = value.size() > kMostOfFact
                    ? str(beginning(value, kMostOfFact), "… (", value.size(), " bytes)")
                    : value;
  }
  return all;
}

// Returns "task 2", or "tasks 1, 3".
std::string tasks_named(const std::vector<std::int64_t>& ranks) {
  return str(ranks.size() == 1 ? "task " : "tasks ", join(ranks));
}

void tell_missing(const std::string& tasks) {
  log_info(str("waits for ", tasks, " on this host"));
}

}  // namespace

HostTasks::HostTasks(const engines::Whereabouts& where, const TaskFacts& facts,
                     milliseconds timeout)
    : cores_(CoreSet::of_thread()) {
  try {
    gather(where, timeout);
    check(shortened_facts(facts));
  } catch (const std::exception& error) {
    end(exit_status(error));
    throw;
  }
}

void HostTasks::gather(const engines::Whereabouts& where, milliseconds timeout) {
  struct Stranger {
    Descriptor socket;
    std::optional<std::string> said{};
  };
  Waited waited;
  const Listener listener(name_of_meeting(where), where.local_tasks, timeout);
  const auto missing = [&] {
    auto ranks = consecutive(std::int64_t{1}, where.local_tasks - 1);
    std::erase_if(ranks, [&](std::int64_t rank) { return tasks_.contains(rank); });
    return ranks;
  };
  std::list<Stranger> strangers;
  LongWait wait;
  while (!missing().empty()) {
    require<Timeout>(waited.look() < timeout, tasks_named(missing()), " of ", where.local_tasks,
                     ", which ", where.starter, " has started on this host, did not come within ",
                     timeout.count(), " ms; --engine none makes each a run of its own");
    if (wait.is_to_tell()) tell_missing(str(tasks_named(missing()), " of ", where.local_tasks));
    PollSet polled;
    bool has_come = false;  // accept4() may fail for want of a descriptor even if nobody came
    polled.add(listener.get(), [&](short /*events*/) { has_come = true; });
    for (Stranger& stranger : strangers) {
      polled.add(stranger.socket.get(), [&](short /*events*/) {
        stranger.said = receive_message(stranger.socket.get(), MSG_DONTWAIT);
      });
    }
    polled.wait(kBetweenTries);
    for (std::int64_t taken = 0; has_come && taken < where.local_tasks; ++taken) {
      Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket.open() && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)) break;
      require_done<CommError>(socket.open(), kCannotMeet);
      strangers.push_back({std::move(socket)});
    }
    for (Stranger& stranger : strangers) {
      if (!stranger.said || stranger.said->empty()) continue;  // empty: the task has gone
      const auto lent = decode<Lent>(*stranger.said, "what a task lends");
      require(lent.rank < where.local_tasks, "a task of this host has local rank ", lent.rank,
              ", and there are ", where.local_tasks);
      require(lent.rank > 0 && !tasks_.contains(lent.rank),
              "two tasks of this job have local rank ", lent.rank, " on this host");
      tasks_[lent.rank] = {std::move(stranger.socket), lent.facts};
      cores_ |= lent.cores;
    }
    std::erase_if(strangers, [](const Stranger& stranger) { return stranger.said.has_value(); });
  }
}

void HostTasks::check(const TaskFacts& facts) const {
  for (const auto& [rank, task] : tasks_) {
    for (const auto& [name, theirs] : task.facts) {
      const auto own = facts.find(name);
      const std::string ours = own == facts.end() ? "" : own->second;
      if (theirs == ours) continue;
      const auto first = std::ranges::mismatch(theirs, ours).in1 - theirs.begin();
      const auto from = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, first - 60));
      const auto shown = [&](const std::string& fact) {
        return str(from > 0 ? "…" : "", cut(fact.substr(from), 200));
      };
      throw ValueError(str("task ", rank, " of this host has other ", name, " (", shown(theirs),
                           ") than task 0 (", shown(ours),
                           "), but tasks of a host run one program together: --engine none makes "
                           "each a run of its own"));
    }
  }
}

void HostTasks::end(int status) noexcept {
  for (const auto& [rank, task] : tasks_) {
    const char byte = static_cast<char>(status);
    (void)send_message(task.socket.get(), {&byte, 1});
  }
  tasks_.clear();
}

namespace {

Descriptor connect_to_first(const engines::Whereabouts& where, const StopSignals& stop,
                            milliseconds timeout) {
  const std::string name = name_of_meeting(where);
  Waited waited;
  LongWait wait;
  for (;;) {
    const Descriptor folder = open_folder();
    Descriptor socket = folder.open() ? connected_to({folder, name}) : Descriptor();
    if (socket.open()) return socket;
    if (stop.signal() != 0) throw Stopped(stop.signal());
    require<Timeout>(waited.look() < timeout, "task 0 of ", where.local_tasks, ", which ",
                     where.starter, " has started on this host, did not come within ",
                     timeout.count(), " ms; --engine none makes each a run of its own");
    if (wait.is_to_tell()) tell_missing(str("task 0 of ", where.local_tasks));
    wait_for({stop.descriptor(), POLLIN, 0}, kBetweenTries);
  }
}

}  // namespace

int stand_by(const engines::Whereabouts& where, const TaskFacts& facts, milliseconds timeout) {
  const StopSignals stop;
  const Descriptor first = connect_to_first(where, stop, timeout);
  const ucred other = other_end(first);
  // If task 0 has ended, the send fails, and the receive below tells so.
  (void)send_message(first.get(),
                     encode(Lent{where.local_rank, CoreSet::of_thread(), shortened_facts(facts)}));
  const std::string message = receive_message(first.get());
  if (!message.empty()) return static_cast<unsigned char>(message[0]);
  if (stop.signal() != 0) throw Stopped(stop.signal());
  throw ReplicaLost(str("task 0 of this host (pid ", other.pid,
                        "), which ran the program for all its tasks, is gone without a status"));
}

}  // namespace lockstep::launcher
