#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/errors.h"
#include "framework/comm/communicator.h"
#include "framework/comm/hierarchy.h"
#include "framework/comm/local_work.h"
#include "framework/comm/run_lock.h"
#include "framework/groups/local_replicas.h"
#include "framework/watch/board.h"

namespace lockstep::groups {

/// The members of one group that one worker runs. Their verbs meet here. Any thread.
class LocalGroup {
 public:
  /// `members` are all members of the group, in the order of their places.
  LocalGroup(LocalReplicas& replicas, std::uint64_t key, std::vector<watch::GroupMember> members);

  [[nodiscard]] const std::vector<watch::GroupMember>& members() const noexcept { return members_; }
  [[nodiscard]] const comm::GroupLayout& layout() const noexcept { return hierarchy_->layout(); }
  [[nodiscard]] LocalReplicas& replicas() const noexcept { return replicas_; }
  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }
  [[nodiscard]] watch::Board::Group& board_group() const noexcept { return *board_group_; }
  [[nodiscard]] const comm::Ledger& ledger() const noexcept;
  [[nodiscard]] bool is_network() const noexcept {
    return outer() != nullptr && outer()->is_network();
  }

  /// Does the verb, whose arguments were checked, together with the group's other members.
  /// `fingerprint` must be the same for all members. Throws LocalReplicas::verdict()'s error if the
  /// verb cannot end. The member at `place` hands over its run lock while it waits.
  void run(const Member& member, int place, std::uint64_t fingerprint, const comm::Verb& verb);

  /// See LocalReplicas::wake_all and Communicator::interrupt.
  void wake();
  void interrupt(const std::exception_ptr& error) noexcept;

 private:
  struct Waiting {
    comm::RunLock* run_lock = nullptr;
    std::thread::id thread;
  };
  [[nodiscard]] comm::Communicator* outer() const noexcept { return hierarchy_->outer(); }
  void run_all(const Member& member, std::uint64_t fingerprint,
               std::span<const comm::Verb* const> verbs);
  void run_alone(const Member& member, std::uint64_t fingerprint, const comm::Verb& verb);
  void run_last(std::unique_lock<std::mutex>& lock, const Member& member);
  [[noreturn]] void fall_out(const Member& member);
  void wait_for_others(const Member& member, std::uint64_t generation, bool first);
  void help(std::unique_lock<std::mutex>& lock);
  void fail(const std::exception_ptr& error);

  LocalReplicas& replicas_;
  std::uint64_t key_;
  std::vector<watch::GroupMember> members_;
  std::shared_ptr<watch::Board::Group> board_group_;
  std::optional<comm::Hierarchy> hierarchy_;
  comm::Ledger own_ledger_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<const comm::Verb*> verbs_;  // by index among the members here
  std::vector<Waiting> waiting_;          // those with a run lock, by the same index
  std::size_t arrived_ = 0;
  std::uint64_t fingerprint_ = 0;
  bool working_ = false;
  std::shared_ptr<comm::LocalWork> work_;  // what others may help with
  int helpers_ = 0;
  std::uint64_t generation_ = 0;
  std::exception_ptr error_;
};

/// The Communicator for the replicas of a collective: threads of this worker, of others, or both.
/// It announces calls on the Board before data moves, so that replicas notice when they are out of
/// step. Used by one replica's thread.
class ReplicaGroup final : public comm::Communicator {
 public:
  ReplicaGroup(std::shared_ptr<LocalGroup> local, const Member& member, int place);

  /// begin() and end() enclose the verbs of one call of a collective. `call` describes it.
  void begin(const watch::CallRecord& call);
  void end() { member_.seat->finish(); }

  /// Which of the group's replicas are in which worker.
  [[nodiscard]] const comm::GroupLayout& layout() const noexcept { return local_->layout(); }

  void run(const comm::Verb& verb) override;

  void abort(const std::string& reason) noexcept override {
    interrupt(std::make_exception_ptr(Aborted(reason)));
  }
  void interrupt(const std::exception_ptr& error) noexcept override { local_->interrupt(error); }
  [[nodiscard]] bool is_network() const noexcept override { return local_->is_network(); }
  [[nodiscard]] const comm::Ledger& ledger() const noexcept override { return local_->ledger(); }

 private:
  [[nodiscard]] std::shared_ptr<comm::Communicator> do_subgroup(std::span<const int> members,
                                                                int own_place,
                                                                std::uint64_t channel) override;

  std::shared_ptr<LocalGroup> local_;
  const Member& member_;
  std::uint64_t verbs_ = 0;
};

}  // namespace lockstep::groups
