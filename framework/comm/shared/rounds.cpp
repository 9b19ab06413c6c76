#include "framework/comm/shared/rounds.h"

#include <cerrno>
#include <utility>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framework/base/cores.h"
#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/poll_set.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/comm/shared/shared_communicator.h"

namespace lockstep::comm {
namespace {

// The time between two looks at whether something has ended a wait.
constexpr std::chrono::milliseconds kSlice{10};
// A wait looks for a later replica this long before it makes a system call: about 3 microseconds on
// a core of its own, then for longer than a sleeper takes to wake on a core that others may have
// meanwhile. Two replicas that wake each other in turn would do nothing else.
constexpr int kSpins = 100;
constexpr std::chrono::microseconds kYielding{100};

// Launchers tell other hosts no keys that begin so: these have replicas of the same ranks.
std::string process_key(int rank) {
  return str("process/", rank);
}

// A descriptor that can be read from when the process has ended; none for this one.
Descriptor open_process(int rank, pid_t pid) {
  if (pid == ::getpid()) return Descriptor();
  Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process.open()) return process;
  if (errno == ESRCH) throw ReplicaLost(str("replica ", rank, " (pid ", pid, ") has ended"));
  throw CommError(str("replica ", rank, " (pid ", pid, ") cannot be watched: pidfd_open: ",
                      text_of_errno(errno), "; Linux 5.3 or newer is needed"));
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
  for (int peer = 0; peer < size; ++peer) {
    const std::string pid = store.get(process_key(peer), options.connect_timeout);
    processes_.push_back(open_process(peer, std::stoi(pid)));
  }
}

int SharedLink::lost_one_of(const std::vector<int>& group) const {
  for (const int member : group) {
    const Descriptor& process = processes_[static_cast<std::size_t>(member)];
    if (process.open() && wait_for({process.get(), POLLIN, 0})) return member;
  }
  return -1;
}

void SharedLink::wait(const Cancellation& user, const Flag& flag, std::uint32_t round, int peer,
                      const std::vector<int>& group, bool same_core) {
  const Flag::Patience patience{.spins = has_own_core_ ? kSpins : 0, .yielding = kYielding};
  // Two replicas on one core, though each could have its own: a sleeper wakes on a free one.
  const bool should_move = has_own_core_ && same_core;
  if (!should_move && flag.wait(round, patience, std::chrono::nanoseconds(0))) return;
  Waited waited;
  while (!flag.wait(round, {}, kSlice)) {
    user.check();
    const int lost = lost_one_of(group);
    // What the lost replica did before its end counts.
    require<ProcessEnded>(lost < 0 || flag.reached(round), "replica ", rank_, " lost replica ",
                          lost, ", whose process has ended");
    require<Timeout>(waited.look() < timeout_, "replica ", rank_, " waited ", timeout_.count(),
                     " ms for replica ", peer, ", which did not arrive");
  }
}

SharedRounds::SharedRounds(std::shared_ptr<SharedLink> link, std::vector<int> members,
                           std::size_t own_place, std::uint64_t channel)
    : link_(std::move(link)),
      members_(std::move(members)),
      own_place_(own_place),
      user_(link_->cancellation()) {
  if (count() == 1) return;
  region_ = link_->memory().hold(Key(channel).fold(members_).bits(), count());
  // The counts go on where an earlier object of this replica and group has left off.
  round_ = region_->line(me()).round.value();
  verbs_ = region_->line(me()).verbs.load();
}

void SharedRounds::meet(Verb::Kind verb, std::uint64_t mark, std::size_t bytes, std::size_t said,
                        ConstBytes input, ConstBytes output) {
  user_.check();
  const std::uint64_t sum = Key(mark).fold(static_cast<std::uint64_t>(verb)).fold(bytes).bits();
  HostMemory::Call& own = call_of(me());
  own.mark.store(sum);
  const SharedExtents& extents = *link_->memory().extents();
  own.input.store(extents.find(input));
  own.output.store(extents.find(output));
  link_->ledger().bytes_sent += said;
  finish_round();
  for (std::size_t place = 0; place < count(); ++place) {
    require<CollectiveMismatch>(call_of(place).mark.load() == sum,
                                "replicas called different collectives, or with other sizes");
  }
}

void SharedRounds::finish_round() {
  const auto core = static_cast<std::uint64_t>(::sched_getcpu() + 1);
  region_->line(me()).core.store(core);
  region_->line(me()).round.raise(++round_);
  for (std::size_t step = 1; step < count(); ++step) {
    const std::size_t place = (me() + step) % count();
    const HostMemory::Line& peer = region_->line(place);
    const bool same_core = core != 0 && peer.core.load() == core;
    link_->wait(user_, peer.round, round_, members_[place], members_, same_core);
  }
  ++link_->ledger().rounds;
}

std::vector<std::byte*> SharedRounds::all_of(Buffer HostMemory::Call::*buffer,
                                             std::size_t offset) const {
  const std::uint64_t extent = (call_of(me()).*buffer).load().extent;
  if (extent == 0) return {};
  std::byte* const data = link_->memory().extents()->data_of(extent);
  std::vector<std::byte*> all;
  for (std::size_t place = 0; place < count(); ++place) {
    const SharedAddress theirs = (call_of(place).*buffer).load();
    if (theirs.extent != extent) return {};
    all.push_back(data + theirs.at + offset);
  }
  return all;
}

bool SharedRounds::output_is_common() const {
  const SharedAddress own = call_of(me()).output.load();
  bool is_common = own.extent != 0;
  for (std::size_t place = 0; is_common && place < count(); ++place) {
    is_common = call_of(place).output.load() == own;
  }
  return is_common;
}

void SharedRounds::write(ConstBytes message, Bytes to) {
  copy_bytes(message, to);
  link_->ledger().bytes_sent += message.size();
}

}  // namespace lockstep::comm
