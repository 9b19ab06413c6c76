#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/communicator.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/comm/store.h"

namespace lockstep::comm {

/// What the groups of one replica share: the memory, who the others are, and what ends it.
class SharedLink {
 public:
  SharedLink(std::shared_ptr<HostMemory> memory, Store& store, int rank, int size,
             const ConnectOptions& options);
  ~SharedLink();
  SharedLink(const SharedLink&) = delete;
  SharedLink& operator=(const SharedLink&) = delete;

  [[nodiscard]] HostMemory& memory() const noexcept { return *memory_; }
  [[nodiscard]] Ledger& ledger() noexcept { return ledger_; }
  /// What ends the waits of all groups.
  [[nodiscard]] const std::shared_ptr<Cancellation>& cancellation() const noexcept {
    return cancellation_;
  }

  /// Waits until the flag of replica `peer`, one of `group`, has reached `round`. Throws
  /// ProcessEnded if one of the group has died before that, Timeout, or what `user` was cancelled
  /// with. With `same_core` the peer was on this thread's core when it was last heard of.
  void wait(const Cancellation& user, const Flag& flag, std::uint32_t round, int peer,
            const std::vector<int>& group, bool same_core);

 private:
  [[nodiscard]] int lost_one_of(const std::vector<int>& group) const;

  std::shared_ptr<HostMemory> memory_;
  int rank_;
  std::chrono::milliseconds timeout_;
  bool has_own_core_;           // there is a core for each replica
  std::vector<int> processes_;  // by rank: a pidfd; -1 for those of this process
  Ledger ledger_;
  std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
};

/// One group of a replica in the memory that it shares with the others: what they know of each
/// other, and when.
///
/// Each member has a flag, which only it raises: the number of rounds that it has finished. A round
/// ends with finish_round(): raise the own flag to r, then wait until everybody's is r at least.
/// So a member is always in one of two states:
///
///   working  in round r (flag at r - 1): everybody has finished round r - 1. What any member wrote
///            before that may be read. What is written now is nobody else's to touch.
///   waiting  at the end of round r (flag at r): the others are in round r, or at its end, or
///            already at work in round r + 1, but not behind that, since they would wait for this
///            flag. What round r wrote may be read by them from now on.
///
/// From which follows what memory may be used for:
/// - What round r writes is read in round r + 1, and may be written again in r + 2: for two rounds
///   in a row there are two places, and whoever writes in round r + 2 knows that all have left
///   round r + 1.
/// - A verb takes any number of rounds, the same for all members. In its first one, meet(), each
///   says what it calls, how long it is and where its buffers are; the next verb's is said in the
///   other of two places. All members read the same, hence decide alike how they go on.
/// - Buffers of symmetric memory may be read and written by all members from the verb's second
///   round on, because all have called it, up to the end of its last, because none has returned.
///
/// A member that has died or given up leaves its flag where it is. The others wait for it in vain,
/// and end by themselves: see SharedLink::wait. After that nothing holds, and the group is of no
/// more use; no memory that somebody may still read is taken away before the others have gone, too.
///
/// A raise releases and a wait acquires (Flag), and nothing else orders what members write: no
/// fence, no lock.
class SharedRounds {
 public:
  /// The group of `members`, ranks on the link, of which this replica is number `own_place`.
  SharedRounds(std::shared_ptr<SharedLink> link, std::vector<int> members, std::size_t own_place,
               std::uint64_t channel);

  [[nodiscard]] Cancellation& user() noexcept { return user_; }
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }
  [[nodiscard]] std::size_t me() const noexcept { return own_place_; }
  [[nodiscard]] std::size_t count() const noexcept { return members_.size(); }

  /// Begins a verb: small() is that of this one, of which the own part may be written.
  void next_verb();
  /// Its first round. `mark` and `bytes` must be those of all members, or it is a
  /// CollectiveMismatch; `said` bytes stand in the own small(); `input` and `output` are the
  /// caller's buffers.
  void meet(Verb::Kind verb, std::uint64_t mark, std::size_t bytes, std::size_t said,
            ConstBytes input, ConstBytes output);
  /// This replica has finished a round; returns when all have.
  void finish_round();
  /// Rounds 0 to `rounds` - 1 of a longer message, in each of which `step` does this replica's
  /// part.
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

  /// After meet(): the members' inputs or outputs from `offset` on, if they are all in one
  /// symmetric allocation; otherwise none. The same for all members.
  [[nodiscard]] std::vector<std::byte*> inputs(std::size_t offset = 0) const {
    return all_of(&HostMemory::Call::input, offset);
  }
  [[nodiscard]] std::vector<std::byte*> outputs(std::size_t offset = 0) const {
    return all_of(&HostMemory::Call::output, offset);
  }
  /// Whether the members' outputs are one and the same symmetric memory.
  [[nodiscard]] bool output_is_common() const;

  /// Copies into memory of which others read.
  void write(ConstBytes message, Bytes to);

 private:
  using Buffer = HostMemory::Call::Buffer;
  [[nodiscard]] HostMemory::Call& call_of(std::size_t place) const {
    return region_->line(place).calls[verbs_ % 2];
  }
  [[nodiscard]] std::vector<std::byte*> all_of(Buffer HostMemory::Call::*buffer,
                                               std::size_t offset) const;

  std::shared_ptr<SharedLink> link_;
  std::vector<int> members_;
  std::size_t own_place_;
  std::shared_ptr<HostMemory::Region> region_;
  Cancellation user_;
  std::size_t verbs_ = 0;
  std::uint32_t round_ = 0;
};

}  // namespace lockstep::comm
