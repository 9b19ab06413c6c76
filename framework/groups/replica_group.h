#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/hierarchy.h"
#include "framework/comm/local_work.h"
#include "framework/comm/run_lock.h"
#include "framework/groups/local_replicas.h"
#include "framework/watch/board.h"

namespace lockstep::groups {

/// The members of one group that one worker runs, each in its thread. Their verbs meet here. Any
/// thread.
class LocalGroup final : public comm::LocalMembers {
 public:
  /// `members` are all members of the group, in the order of their places.
  LocalGroup(LocalReplicas& replicas, std::uint64_t key, std::vector<watch::GroupMember> members);

  [[nodiscard]] LocalReplicas& replicas() const noexcept { return replicas_; }
  [[nodiscard]] watch::Board::Group& board_group() const noexcept { return *board_group_; }

  /// `member` is the one at `place`. Call it before its first verb.
  void join(int place, const Member& member);

  /// Throws LocalReplicas::verdict()'s error if the verb cannot end. The member at `place` hands
  /// over its run lock while it waits.
  void meet(int place, std::uint64_t mark, const comm::Verb& verb) override;
  [[nodiscard]] std::shared_ptr<comm::LocalMembers> subgroup(std::span<const int> members,
                                                             int place,
                                                             std::uint64_t channel) override;
  void interrupt(const std::exception_ptr& error) noexcept override;

  /// See LocalReplicas::wake_all.
  void wake();

 private:
  struct Waiting {
    comm::RunLock* run_lock = nullptr;
    std::thread::id thread;
  };
  void run_outside(const Member& member, std::uint64_t mark,
                   std::span<const comm::Verb* const> verbs);
  void run_alone(const Member& member, std::uint64_t mark, const comm::Verb& verb);
  void run_last(std::unique_lock<std::mutex>& lock, const Member& member);
  [[noreturn]] void fall_out(const Member& member);
  void wait_for_others(const Member& member, std::uint64_t generation, bool first);
  void help(std::unique_lock<std::mutex>& lock);
  void fail(const std::exception_ptr& error);

  LocalReplicas& replicas_;
  std::uint64_t key_;
  std::vector<watch::GroupMember> members_;
  std::shared_ptr<watch::Board::Group> board_group_;
  std::vector<const Member*> own_members_;  // by index among the members here

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<const comm::Verb*> verbs_;  // by the same index
  std::vector<Waiting> waiting_;          // those with a run lock, by the same index
  std::size_t arrived_ = 0;
  std::uint64_t mark_ = 0;  // of the first to arrive
  bool working_ = false;
  std::shared_ptr<comm::LocalWork> work_;  // what others may help with
  int helpers_ = 0;
  std::uint64_t generation_ = 0;
  std::exception_ptr error_;
};

/// The Communicator for the replicas of a collective: threads of this worker, of others, or both.
/// It announces calls on the Board before data moves, so that replicas notice when they are out of
/// step. Used by one replica's thread.
class ReplicaGroup final : public comm::Hierarchy {
 public:
  ReplicaGroup(const std::shared_ptr<LocalGroup>& local, const Member& member, int place);

  /// begin() and end() enclose the verbs of one call of a collective. `call` describes it.
  void begin(const watch::CallRecord& call);
  void end() { member_.seat->finish(); }

 private:
  LocalGroup& group_;  // the base class keeps it
  const Member& member_;
};

}  // namespace lockstep::groups
