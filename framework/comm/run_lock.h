#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace lockstep {

/// A right to run that one of several threads has at a time: the lanes of a vmap, or replicas that
/// share a worker. A thread that has it hands it over where it waits for others (RunLockRelease),
/// to the first in line: whoever has waited longest, or was lined up by who let them go on. After
/// `patience` nobody waits on for one that does not hand it over, and may never: the next in line
/// has it then.
class RunLock {
 public:
  static constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

  explicit RunLock(std::chrono::milliseconds patience = kForever)
      : patience_(patience), look_around_(patience == kForever ? kForever : kLookAround) {}
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Waits until the calling thread holds it.
  void take();
  /// Hands it over, to nobody if nobody waits; nothing if another thread has it by now.
  void give() noexcept;
  /// Puts a thread in line that has handed it over and is about to take it again: so that threads
  /// which are let go on together have it in the order of these calls, not in that of waking up.
  /// It must take it.
  void line_up(std::thread::id thread);
  /// When it was released last: those who wait for it are not late before. Any thread.
  [[nodiscard]] std::chrono::steady_clock::time_point given_last() const noexcept {
    return given_last_;
  }

 private:
  void hand_over() noexcept;

  struct Waiter {
    std::condition_variable granted_changed;
    bool granted = false;
  };
  // How often who waits looks whether it is over: where that never is so, not at all.
  static constexpr std::chrono::milliseconds kLookAround{100};
  std::chrono::milliseconds patience_;
  std::chrono::milliseconds look_around_;
  std::mutex mutex_;
  std::thread::id holder_;  // none: nobody's
  std::deque<std::thread::id> line_;
  std::unordered_map<std::thread::id, Waiter*>
      waiting_;  // of those in line: nullptr: not there yet
  std::atomic<std::chrono::steady_clock::time_point> given_last_{};
};

/// The lock that this thread runs under, or nullptr.
[[nodiscard]] RunLock* current_run_lock() noexcept;

/// The calling thread takes the lock and runs under it while this lives; with nullptr under none.
class RunLockScope {
 public:
  explicit RunLockScope(RunLock* run_lock);
  ~RunLockScope();
  RunLockScope(const RunLockScope&) = delete;
  RunLockScope& operator=(const RunLockScope&) = delete;

 private:
  RunLock* outer_;
};

/// While it lives the calling thread waits for something and has released the lock that it runs
/// under, if there is one.
class RunLockRelease {
 public:
  RunLockRelease() noexcept;
  ~RunLockRelease();
  RunLockRelease(const RunLockRelease&) = delete;
  RunLockRelease& operator=(const RunLockRelease&) = delete;

 private:
  RunLock* run_lock_;
};

}  // namespace lockstep
