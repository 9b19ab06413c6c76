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
/// share a worker. A thread that has it hands it over where it waits for others (TurnBreak), to
/// the first in line: whoever has waited longest, or was lined up by who let them go on. After
/// `patience` nobody waits on for one that does not hand it over, and may never: the next in line
/// has it then.
class Turn {
 public:
  static constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

  explicit Turn(std::chrono::milliseconds patience = kForever)
      : patience_(patience), look_around_(patience == kForever ? kForever : kLookAround) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// Waits until the calling thread has it.
  void take();
  /// Hands it over, to nobody if nobody waits; nothing if another thread has it by now.
  void give() noexcept;
  /// Puts a thread in line that has handed it over and is about to take it again: so that threads
  /// which are let go on together have it in the order of these calls, not in that of waking up.
  /// It must take it.
  void line_up(std::thread::id thread);
  /// When it was handed over last: those who wait for their turn are not late before. Any thread.
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

/// The turn that this thread runs under, or nullptr.
[[nodiscard]] Turn* current_turn() noexcept;

/// The calling thread takes its turn of `turn` and runs under it while this lives. Without one
/// (nullptr) it runs under none.
class TurnScope {
 public:
  explicit TurnScope(Turn* turn);
  ~TurnScope();
  TurnScope(const TurnScope&) = delete;
  TurnScope& operator=(const TurnScope&) = delete;

 private:
  Turn* outer_;
};

/// While it lives the calling thread waits for something and has handed over its turn, if it runs
/// under one.
class TurnBreak {
 public:
  TurnBreak() noexcept;
  ~TurnBreak();
  TurnBreak(const TurnBreak&) = delete;
  TurnBreak& operator=(const TurnBreak&) = delete;

 private:
  Turn* turn_;
};

}  // namespace lockstep
