#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/process.h"
#include "framework/base/waited.h"
#include "framework/calls/call_table.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/communicator.h"
#include "framework/comm/run_lock.h"

namespace lockstep::groups {

/// A replica as its groups see it. Its own thread uses it; any thread that watches a wait reads it.
struct Member {
  std::unique_ptr<calls::CallTable::Slot> slot;
  std::shared_ptr<comm::Cancellation> cancellation;
  /// How long the replica waits for others in a collective. Its thread changes this while others
  /// may read it.
  std::atomic<std::chrono::milliseconds> timeout;
  /// The lock under which the replica runs, if replicas take turns. A wait does not time out as
  /// long as the lock is handed over.
  const comm::RunLock* run_lock = nullptr;
};

class LocalGroup;

/// The replicas that one worker runs: their groups, and a watch over their waits. A worker is a
/// process, or a thread of a job in threads. A map outside of a job has a worker of its own. Any
/// thread.
class LocalReplicas : private NonCopyable {
 public:
  /// How often a wait is checked.
  static constexpr std::chrono::milliseconds kLookAround{50};

  /// Serves the replicas of worker `worker`. `world` joins all workers; nullptr if this is the only
  /// one. All workers share `table`.
  LocalReplicas(int worker, std::shared_ptr<comm::Communicator> world,
                std::shared_ptr<calls::CallTable> table);

  [[nodiscard]] int worker() const noexcept { return worker_; }
  /// Throws ValueError in a process that a replica has forked. Such a process has copies of the
  /// replicas, which must not take part in their collectives.
  void check_process() const;
  [[nodiscard]] calls::CallTable& call_table() const noexcept { return *table_; }
  /// Returns the communicator that joins the workers; nullptr if there is one worker.
  [[nodiscard]] comm::Communicator* world() const noexcept { return world_.get(); }

  /// Returns the group called `key`. `members` gives its members and is called if the group has to
  /// be made. All replicas of the group use the same key, and no other group uses it.
  [[nodiscard]] std::shared_ptr<LocalGroup> group(
      std::uint64_t key, const std::function<std::vector<calls::GroupMember>()>& members);

  /// Makes all waiting replicas check their cancellation. Call it after Cancellation::cancel.
  void wake_all();

  /// Returns the error that a wait of `member` must end with: CollectiveMismatch, ReplicaLost or
  /// Aborted if the wait can never end, Timeout if it takes too long; nullptr while it may still
  /// end. A mismatch cancels all replicas of its map. In the first 0.3 s of a wait (2 s in a job on
  /// several hosts) only deadlock reports count that are settled or published.
  [[nodiscard]] std::exception_ptr end_of_wait(const Member& member, Waited& waited) const;

  /// While this lives, checks a replica's wait for other workers, since the waiting thread can't.
  class Guarded : private NonCopyable {
   public:
    Guarded(LocalReplicas& replicas, const Member& member, comm::Communicator& outer);
    ~Guarded();

    /// Returns how long the wait has lasted.
    [[nodiscard]] Waited waited() const;

   private:
    friend LocalReplicas;
    LocalReplicas& replicas_;
    const Member& member_;
    comm::Communicator& outer_;
    mutable Waited waited_;  // guarded by the mutex of the replicas; watch() looks at it
  };

 private:
  void watch(const std::stop_token& stop);

  int worker_;
  std::uint64_t process_ = process_generation();
  std::shared_ptr<comm::Communicator> world_;
  std::shared_ptr<calls::CallTable> table_;

  Mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<LocalGroup>> groups_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Guarded*> waits_ LOCKSTEP_GUARDED_BY(mutex_);
  // The watcher runs from the first guarded wait on, and ends before the other members.
  std::jthread watcher_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::groups
