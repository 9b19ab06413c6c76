#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <unordered_map>

#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"

namespace lockstep::comm {

/// Lets one of several threads run at a time: the lanes of a vmap, or replicas that share a worker.
/// A thread that waits for others hands the lock over (RunLockRelease) to the first in line.
/// Threads stand in the order in which they began to wait, or line_up() put them there. A thread
/// may hold the lock for ever; after `patience` the next in line runs beside it.
class RunLock : private NonCopyable {
 public:
  static constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

  explicit RunLock(std::chrono::milliseconds patience = kForever)
      : patience_(patience), look_around_(patience == kForever ? kForever : kLookAround) {}

  /// Waits until the calling thread holds the lock.
  void take();
  /// Hands the lock over to the next in line, if any; does nothing if another thread has taken it.
  void give() noexcept;
  /// Puts a thread in line that has handed the lock over and is about to take it again, or waits
  /// for its turn. So threads that are released together run in the order of these calls, not in
  /// the order in which they wake up. The thread must then take the lock.
  void line_up(std::thread::id thread);
  /// Waits until line_up() has put the calling thread in line and its turn has come, but no longer
  /// than `limit`. Returns true if the thread holds the lock now.
  [[nodiscard]] bool wait_for_turn(std::chrono::milliseconds limit);
  /// Returns the time of the last release: no waiter is late before it. Any thread may call this.
  [[nodiscard]] std::chrono::steady_clock::time_point given_last() const noexcept {
    return given_last_;
  }

 private:
  struct Thread {
    Condition turn;
    bool is_in_line = false;
    bool was_handed_over = false;  // the lock, and the thread has not gone on since
  };
  void join_line(Thread& thread) LOCKSTEP_REQUIRES(mutex_);
  void hand_over() noexcept LOCKSTEP_REQUIRES(mutex_);

  // The time between two looks of a waiter at its patience, unless that has no end.
  static constexpr std::chrono::milliseconds kLookAround{100};
  std::chrono::milliseconds patience_;
  std::chrono::milliseconds look_around_;
  Mutex mutex_;
  std::unordered_map<std::thread::id, Thread> threads_ LOCKSTEP_GUARDED_BY(mutex_);
  Thread* holder_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;  // nullptr: the lock is free
  std::deque<Thread*> line_ LOCKSTEP_GUARDED_BY(mutex_);
  std::atomic<std::chrono::steady_clock::time_point> given_last_{};
};

/// Returns the lock that this thread runs under, or nullptr.
[[nodiscard]] RunLock* current_run_lock() noexcept;

/// While this lives, the calling thread holds the lock and runs under it; with nullptr, under none.
class RunLockScope : private NonCopyable {
 public:
  explicit RunLockScope(RunLock* run_lock);
  ~RunLockScope();

 private:
  RunLock* outer_;
};

/// While this lives, the calling thread waits for something and has released its lock, if any.
class RunLockRelease : private NonCopyable {
 public:
  RunLockRelease() noexcept;
  ~RunLockRelease();

 private:
  RunLock* run_lock_;
};

}  // namespace lockstep::comm
