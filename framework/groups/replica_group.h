#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/calls/call_table.h"
#include "framework/comm/communicator.h"
#include "framework/comm/group_layout.h"
#include "framework/comm/run_lock.h"
#include "framework/comm/shared/flag.h"
#include "framework/comm/together.h"
#include "framework/groups/local_replicas.h"

namespace lockstep::groups {

/// The members of one group that one worker runs, each in its thread. Their verbs meet here. Any
/// thread.
class LocalGroup : private NonCopyable {
 public:
  /// `members` are all members of the group, in the order of their places.
  LocalGroup(LocalReplicas& replicas, std::uint64_t key, std::vector<calls::GroupMember> members);

  [[nodiscard]] LocalReplicas& replicas() const noexcept { return replicas_; }
  [[nodiscard]] calls::CallTable::Group& call_group() const noexcept { return *call_group_; }
  [[nodiscard]] const comm::GroupLayout& layout() const noexcept { return layout_; }
  /// Returns the communicator that joins the group's workers; nullptr if this one has all members.
  [[nodiscard]] comm::Communicator* workers() const noexcept { return together_.workers(); }

  /// Runs `verb` of `member`, which is at `place`, together with the verbs of all other members,
  /// here and elsewhere. The arguments must have been checked. Each member here calls this, with
  /// the same `mark`. Throws LocalReplicas::end_of_wait()'s error if the verb cannot end. The
  /// member hands over its run lock while it waits.
  void meet(const Member& member, int place, std::uint64_t mark, const comm::Verb& verb);
  /// Returns the members here of a subgroup.
  [[nodiscard]] std::shared_ptr<LocalGroup> subgroup(std::span<const int> members,
                                                     std::uint64_t channel);
  /// Ends the verbs of all members here.
  void interrupt(const std::exception_ptr& error) noexcept;

  /// Wakes all members that wait here: see LocalReplicas::wake_all.
  void wake();

 private:
  struct Waiting {
    comm::RunLock* run_lock = nullptr;
    std::thread::id thread;
  };
  void run_outside(const Member& member, std::uint64_t mark, comm::Together::Verbs verbs);
  void run_alone(const Member& member, std::uint64_t mark, const comm::Verb& verb);
  void run_last(const Member& member, std::size_t index) LOCKSTEP_REQUIRES(mutex_);
  [[noreturn]] void fall_out(const Member& member);
  void wait_for_others(const Member& member, std::size_t index, std::uint64_t generation,
                       bool looks_around);
  void tell_change() LOCKSTEP_REQUIRES(mutex_) { changed_.raise(++changes_); }
  void wait_for_change(std::chrono::nanoseconds longest) noexcept LOCKSTEP_REQUIRES(mutex_);
  void wake_waiting() LOCKSTEP_REQUIRES(mutex_);
  void help() LOCKSTEP_REQUIRES(mutex_);
  void fail(const std::exception_ptr& error) LOCKSTEP_REQUIRES(mutex_);

  LocalReplicas& replicas_;
  std::uint64_t key_;
  std::vector<calls::GroupMember> members_;
  comm::GroupLayout layout_;
  comm::Together together_;
  std::shared_ptr<calls::CallTable::Group> call_group_;

  Mutex mutex_;
  comm::Flag::Patience patience_{};  // of members that wait, before they sleep
  comm::Flag changed_{};             // raised by each change for which members wait here
  std::uint32_t changes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  // The verbs, by index among the members here. The last to arrive uses them, without the mutex.
  std::vector<const comm::Verb*> verbs_;
  std::vector<Waiting> waiting_ LOCKSTEP_GUARDED_BY(mutex_);  // members that wait under a run lock
  std::size_t arrived_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t mark_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of the first to arrive
  bool working_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::shared_ptr<comm::LocalWork> work_ LOCKSTEP_GUARDED_BY(mutex_);  // for others to help with
  int helpers_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t generation_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
};

/// The Communicator for the replicas of a collective: threads of this worker, of others, or both.
/// It announces calls in the CallTable before data moves, so that replicas notice when they are out
/// of step. Used by one replica's thread.
class ReplicaGroup final : public comm::Communicator {
 public:
  ReplicaGroup(std::shared_ptr<LocalGroup> local, const Member& member, int place);

  /// Announces `call`, one call of a collective. begin() and end() enclose its verbs.
  void begin(const calls::CallRecord& call);
  void end() { member_.slot->finish(); }

  /// Returns the distribution of the group's members over workers.
  [[nodiscard]] const comm::GroupLayout& layout() const noexcept { return local_->layout(); }

  void run(const comm::Verb& verb) override { local_->meet(member_, rank(), next_mark(), verb); }
  void interrupt(const std::exception_ptr& error) noexcept override { local_->interrupt(error); }
  void abort(const std::string& reason) noexcept override {
    interrupt(std::make_exception_ptr(Aborted(reason)));
  }
  [[nodiscard]] bool is_network() const noexcept override {
    return workers() != nullptr && workers()->is_network();
  }
  [[nodiscard]] bool shares_memory() const noexcept override {
    return layout().workers() < layout().size() ||
           (workers() != nullptr && workers()->shares_memory());
  }
  [[nodiscard]] double all_reduce_seconds(std::size_t bytes) const override {
    return workers() != nullptr ? workers()->all_reduce_seconds(bytes) : 0;
  }
  [[nodiscard]] const comm::Ledger& ledger() const noexcept override {
    return workers() != nullptr ? workers()->ledger() : own_ledger_;
  }

 private:
  [[nodiscard]] std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int place,
                                                          std::uint64_t channel) override {
    return std::make_shared<ReplicaGroup>(local_->subgroup(members, channel), member_, place);
  }
  [[nodiscard]] comm::Communicator* workers() const noexcept { return local_->workers(); }

  std::shared_ptr<LocalGroup> local_;
  const Member& member_;
  comm::Ledger own_ledger_;  // stays empty: if all are here, nothing is sent
};

}  // namespace lockstep::groups
