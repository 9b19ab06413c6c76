#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framework/base/bytes.h"
#include "framework/base/cores.h"
#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/non_copyable.h"
#include "framework/base/poll_set.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/communicator.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/comm/shared/shared_communicator.h"
#include "framework/comm/store.h"

namespace lockstep::comm {

/// The memory, the other replicas and the Cancellation that all groups of one replica use.
class SharedLink : private NonCopyable {
 public:
  SharedLink(std::shared_ptr<HostMemory> memory, Store& store, int rank, int size,
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

  [[nodiscard]] HostMemory& memory() const noexcept { return *memory_; }
  [[nodiscard]] Ledger& ledger() noexcept { return ledger_; }
  /// Cancelling this ends the waits of all groups.
  [[nodiscard]] const std::shared_ptr<Cancellation>& cancellation() const noexcept {
    return cancellation_;
  }

  /// Waits until the flag of replica `peer`, one of `group`, has reached `round`. Throws
  /// ProcessEnded if a replica of the group has died before that, Timeout, or the error of `user`
  /// if that is cancelled. `same_core`: the peer last finished a round on this thread's core.
  void wait(const Cancellation& user, const Flag& flag, std::uint32_t round, int peer,
            const std::vector<int>& group, bool same_core) {
    const Flag::Patience patience{.spins = has_own_core_ ? kSpins : 0, .yielding = kYielding};
    // Two replicas are on one core, though each could have its own: a sleeper wakes on a free one.
    const bool should_move = has_own_core_ && same_core;
    if (!should_move && flag.wait(round, patience, std::chrono::nanoseconds(0))) return;
    Waited waited;
    while (!flag.wait(round, {}, kSlice)) {
      user.check();
      const int lost = lost_one_of(group);
      // A round that the lost replica has finished before its end counts.
      require<ProcessEnded>(lost < 0 || flag.reached(round), "replica ", rank_, " lost replica ",
                            lost, ", whose process has ended");
      require<Timeout>(waited.look() < timeout_, "replica ", rank_, " waited ", timeout_.count(),
                       " ms for replica ", peer, ", which did not arrive");
    }
  }

 private:
  // The time between two looks for an end of the wait.
  static constexpr std::chrono::milliseconds kSlice{10};
  // A wait looks for a later replica this long before it makes a system call: about 3 microseconds
  // on a core of its own, then for longer than a sleeper takes to wake on a core that others may
  // have meanwhile. Two replicas that wake each other in turn would do nothing else.
  static constexpr int kSpins = 100;
  static constexpr std::chrono::microseconds kYielding{100};

  // Launchers keep keys that begin so from other hosts, which have replicas of the same ranks.
  static std::string process_key(int rank) { return str("process/", rank); }

  // Returns a descriptor that is readable once the process has ended; none for this process.
  static Descriptor open_process(int rank, pid_t pid) {
    if (pid == ::getpid()) return Descriptor();
    Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (process.open()) return process;
    if (errno == ESRCH) throw ReplicaLost(str("replica ", rank, " (pid ", pid, ") has ended"));
    throw CommError(str("replica ", rank, " (pid ", pid, ") cannot be watched: pidfd_open: ",
                        text_of_errno(errno), "; Linux 5.3 or newer is needed"));
  }

  [[nodiscard]] int lost_one_of(const std::vector<int>& group) const {
    for (const int member : group) {
      const Descriptor& process = processes_[static_cast<std::size_t>(member)];
      if (process.open() && wait_for({process.get(), POLLIN, 0})) return member;
    }
    return -1;
  }

  std::shared_ptr<HostMemory> memory_;
  int rank_;
  std::chrono::milliseconds timeout_;
  bool has_own_core_;                  // there is a core for each replica
  std::vector<Descriptor> processes_;  // by rank: a pidfd; none for replicas of this process
  Ledger ledger_;
  std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
};

/// One group of a replica in shared memory, with the rules by which its members go on together.
///
/// Each member has a flag, which only it raises: the number of rounds that it has finished. A round
/// ends with finish_round(): raise the own flag to r, then wait until everybody's is r at least.
/// So a member is always in one of two states:
///
///   working  in round r (flag at r - 1): everybody has finished round r - 1. All that any member
///            wrote before that may be read. No other member may touch the memory that this member
///            writes now.
///   waiting  at the end of round r (flag at r): the others are in round r, or at its end, or
///            already at work in round r + 1, but no further, since they would wait for this
///            flag. From now on they may read what round r wrote.
///
/// These rules for the use of memory follow:
/// - Data that round r writes is read in round r + 1 and may be overwritten in round r + 2, since
///   all members have then left round r + 1. So data that is read once needs two buffers.
/// - A verb takes any number of rounds, the same for all members. In the first, meet(), each member
///   publishes its verb, its size and the places of its buffers; verbs use two places for this in
///   turn. All members read the same, so they all decide alike how to go on.
/// - Symmetric buffers may be read and written by all members from the verb's second round on,
///   since all have then called it, until the end of its last round, since none has returned
///   before.
///
/// A member that has died or given up no longer raises its flag. The others wait for it in vain,
/// and end by themselves: see SharedLink::wait. Then the rules above no longer hold, and the group
/// can't be used any more. Memory that a member may still read stays until that member has gone,
/// too.
///
/// A raise releases and a wait acquires (Flag). Nothing else orders what members write: no fence,
/// no lock.
class SharedRounds {
 public:
  /// Joins the group of `members` (ranks on the link); this replica's index there is `own_place`.
  SharedRounds(std::shared_ptr<SharedLink> link, std::vector<int> members, std::size_t own_place,
               std::uint64_t channel)
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

  [[nodiscard]] Cancellation& user() noexcept { return user_; }
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }
  [[nodiscard]] std::size_t me() const noexcept { return own_place_; }
  [[nodiscard]] std::size_t count() const noexcept { return members_.size(); }

  /// Begins a verb. From now on small() is this verb's, and the own part of it may be written.
  void next_verb() { region_->line(me()).verbs.store(++verbs_); }
  /// Does the verb's first round. Throws CollectiveMismatch unless `verb`, `mark` and `bytes` are
  /// the same for all members. The message is the first `said` bytes of the own small(). `input`
  /// and `output` are the caller's buffers.
  void meet(Verb::Kind verb, std::uint64_t mark, std::size_t bytes, std::size_t said,
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
  /// Finishes a round of this replica, and returns when all members have finished it.
  void finish_round() {
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
  /// Does rounds 0 to `rounds` - 1 of a longer message. `step` does this replica's part of a round.
  template <typename Step>
  void pass(std::size_t rounds, const Step& step) {
    for (std::size_t round = 0; round < rounds; ++round) {
      step(round);
      finish_round();
    }
  }

  [[nodiscard]] Bytes small(std::size_t place) const { return region_->small(place, verbs_ % 2); }
  [[nodiscard]] Bytes own_small() const { return small(me()); }
  [[nodiscard]] Bytes chunk(std::size_t place, std::size_t round) const {
    return region_->chunk(place, round % HostMemory::kChunks);
  }

  /// Returns, after meet(), the members' inputs or outputs from `offset` on, if all are in one
  /// symmetric allocation; otherwise an empty list. All members get the same answer.
  [[nodiscard]] std::vector<std::byte*> inputs(std::size_t offset = 0) const {
    return all_of(&HostMemory::Call::input, offset);
  }
  [[nodiscard]] std::vector<std::byte*> outputs(std::size_t offset = 0) const {
    return all_of(&HostMemory::Call::output, offset);
  }
  /// True when the members' outputs are one and the same symmetric memory.
  [[nodiscard]] bool output_is_common() const {
    const SharedAddress own = call_of(me()).output.load();
    bool is_common = own.extent != 0;
    for (std::size_t place = 0; is_common && place < count(); ++place) {
      is_common = call_of(place).output.load() == own;
    }
    return is_common;
  }

  /// Copies into memory that others read.
  void write(ConstBytes message, Bytes to) {
    copy_bytes(message, to);
    link_->ledger().bytes_sent += message.size();
  }

 private:
  using Buffer = HostMemory::Call::Buffer;
  [[nodiscard]] HostMemory::Call& call_of(std::size_t place) const {
    return region_->line(place).calls[verbs_ % 2];
  }
  [[nodiscard]] std::vector<std::byte*> all_of(Buffer HostMemory::Call::*buffer,
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

  std::shared_ptr<SharedLink> link_;
  std::vector<int> members_;
  std::size_t own_place_;
  std::shared_ptr<HostMemory::Region> region_;
  Cancellation user_;
  std::size_t verbs_ = 0;
  std::uint32_t round_ = 0;
};

}  // namespace lockstep::comm
