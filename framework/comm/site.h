#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/process.h"
#include "framework/base/waited.h"
#include "framework/comm/board.h"
#include "framework/comm/common_buffers.h"
#include "framework/comm/communicator.h"
#include "framework/comm/deposit.h"
#include "framework/comm/local_work.h"
#include "framework/comm/turn.h"

namespace lockstep {

/// What ends the replicas of a team: set once, by the failure of one of them or of the replica that
/// called the map. Any thread.
class Fate {
 public:
  explicit Fate(std::shared_ptr<const Fate> outer = nullptr) : outer_(std::move(outer)) {}

  /// The first call counts.
  void end(const std::exception_ptr& error);
  /// The same with Aborted(reason).
  void end(const std::string& reason);
  /// Throws the error if this or an outer one has ended.
  void check() const;
  [[nodiscard]] bool ended() const noexcept;
  /// What this one was ended with, not an outer one; nullptr if it was not.
  [[nodiscard]] std::exception_ptr error() const noexcept;

 private:
  std::shared_ptr<const Fate> outer_;
  mutable std::mutex mutex_;
  std::atomic<bool> ended_{false};
  std::exception_ptr error_;
};

/// A replica as the groups see it that it takes part in. Used by its own thread, but for its seat's
/// board and its fate.
struct Member {
  std::unique_ptr<Board::Seat> seat;
  std::shared_ptr<Fate> fate;
  std::chrono::milliseconds timeout;  ///< how long it waits for others in a collective
  /// What it shares with others of whom one runs at a time: they are waited for while they hand it
  /// over.
  const Turn* turn = nullptr;
};

/// A wait of a replica for others that cannot look around itself: something else does so for it.
struct Wait {
  const Member* member;
  Communicator* outer;
  Waited waited;
};

class Meeting;

/// The replicas of a job, or of a map outside of one, that are threads of this process: where they
/// meet, and how they reach those of other processes. Any thread.
class Site {
 public:
  /// Process `host` of those that `world` joins (nullptr: it is the only one), which share `board`.
  Site(int host, std::shared_ptr<Communicator> world, std::shared_ptr<Board> board);
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  [[nodiscard]] int host() const noexcept { return host_; }
  /// Throws ValueError in a process that a replica has forked: it has copies of them, which must
  /// not take part in their collectives.
  void check_process() const;
  [[nodiscard]] Board& board() const noexcept { return *board_; }
  [[nodiscard]] CommonBuffers& common_buffers() noexcept { return common_buffers_; }
  /// The processes, or nullptr where there is one.
  [[nodiscard]] Communicator* world() const noexcept { return world_.get(); }

  /// The meeting of the group called `key`, whose members `members` lists when it has to be made.
  /// All of the group's replicas use the same key, and no other group does.
  [[nodiscard]] std::shared_ptr<Meeting> meeting(
      std::uint64_t key, const std::function<std::vector<GroupMember>()>& members);

  /// Has everyone who waits look whether something has ended them. To be called after Fate::end.
  void wake_all();

  /// Looks after a wait of `member`: what it must end with: CollectiveMismatch, ReplicaLost or
  /// Aborted if what it waits for cannot come, Timeout if it did not; nullptr while it may come. A
  /// mismatch becomes the fate of its whole team. In the first 0.3 s of a wait nobody is judged on
  /// what some have called while others are on their way.
  [[nodiscard]] std::exception_ptr verdict(const Member& member, Waited& waited) const;

  /// Looks after a wait on other processes while this lives.
  class Guarded {
   public:
    Guarded(Site& site, const Member& member, Communicator* outer);
    ~Guarded();
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;

    /// How long it has been by now.
    [[nodiscard]] Waited waited() const;

   private:
    Site& site_;
    std::list<Wait>::iterator wait_;
  };

 private:
  void watch();

  int host_;
  std::uint64_t process_ = process_generation();
  std::shared_ptr<Communicator> world_;
  std::shared_ptr<Board> board_;
  CommonBuffers common_buffers_;

  std::mutex mutex_;  // guards what follows
  std::map<std::uint64_t, std::weak_ptr<Meeting>> meetings_;
  std::list<Wait> waits_;
  bool closing_ = false;
  std::condition_variable closing_changed_;
  std::thread watcher_;  // runs from the first guarded wait on
};

/// The meeting place of one group's replicas in this process.
class Meeting {
 public:
  Meeting(Site& site, std::uint64_t key, std::vector<GroupMember> members);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] const std::vector<GroupMember>& members() const noexcept { return members_; }
  [[nodiscard]] Site& site() const noexcept { return site_; }
  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }
  [[nodiscard]] Board::Group& board_group() const noexcept { return *board_group_; }
  [[nodiscard]] const Ledger& ledger() const noexcept;
  [[nodiscard]] bool is_network() const noexcept { return outer_ && outer_->is_network(); }

  /// Does the verb together with the group's other replicas; `fingerprint` must be theirs, too.
  /// Throws what Site::verdict says when that cannot be. Replica `place` hands over its turn while
  /// it waits.
  void meet(const Member& member, int place, std::uint64_t fingerprint, const Deposit& deposit);

  /// See Site::wake_all and Communicator::interrupt.
  void wake();
  void interrupt(const std::exception_ptr& error) noexcept;

 private:
  struct Waiting {
    Turn* turn = nullptr;
    std::thread::id thread;
  };
  void do_all(const Member& member, std::uint64_t fingerprint);
  void explain_end(const Member& member, const Site::Guarded& guarded) const;
  [[noreturn]] void fall_out(const Member& member);
  void wait_for_others(const Member& member, std::uint64_t generation, bool first);
  void help(std::unique_lock<std::mutex>& lock);
  void fail(const std::exception_ptr& error);

  Site& site_;
  std::uint64_t key_;
  std::vector<GroupMember> members_;
  GroupLayout layout_;
  std::vector<std::size_t> local_of_;  // by place: index among those here
  std::shared_ptr<Board::Group> board_group_;
  std::shared_ptr<Communicator> outer_;
  Ledger own_ledger_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<const Deposit*> deposits_;  // by local index
  std::vector<Waiting> waiting_;          // by local index: those who take turns
  std::size_t arrived_ = 0;
  std::uint64_t fingerprint_ = 0;
  bool working_ = false;
  std::shared_ptr<LocalWork> work_;  // what others may help with
  int helpers_ = 0;
  std::uint64_t generation_ = 0;
  std::exception_ptr error_;
};

}  // namespace lockstep
