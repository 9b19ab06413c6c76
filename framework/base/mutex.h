#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "framework/base/non_copyable.h"

// Macros that name a variable's lock: clang checks them (-Wthread-safety), other compilers leave
// them out. A constructor or destructor is not checked for its own object. A lambda is a function
// of its own: to use guarded variables it has LOCKSTEP_REQUIRES behind its parameters.
#ifdef __clang__
#define LOCKSTEP_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define LOCKSTEP_THREAD_ATTRIBUTE(attribute)
#endif
/// On a variable: only the holder of the mutex reads and writes it.
#define LOCKSTEP_GUARDED_BY(mutex) LOCKSTEP_THREAD_ATTRIBUTE(guarded_by(mutex))
/// On a function: its caller holds the mutexes.
#define LOCKSTEP_REQUIRES(...) LOCKSTEP_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
/// On a function: it takes the mutex, or hands it back.
#define LOCKSTEP_ACQUIRE(...) LOCKSTEP_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define LOCKSTEP_RELEASE(...) LOCKSTEP_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
/// On a class: its objects hold a mutex as long as they live.
#define LOCKSTEP_SCOPED_LOCK LOCKSTEP_THREAD_ATTRIBUTE(scoped_lockable)

namespace lockstep {

/// A std::mutex that clang's check knows. Take it by a MutexLock.
class LOCKSTEP_THREAD_ATTRIBUTE(capability("mutex")) Mutex : private NonCopyable {
 public:
  void lock() LOCKSTEP_ACQUIRE() { mutex_.lock(); }
  void unlock() LOCKSTEP_RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() LOCKSTEP_THREAD_ATTRIBUTE(try_acquire_capability(true)) {
    return mutex_.try_lock();
  }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a mutex while it lives, except between unlock() and lock().
class LOCKSTEP_SCOPED_LOCK MutexLock : private NonCopyable {
 public:
  explicit MutexLock(Mutex& mutex) LOCKSTEP_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() LOCKSTEP_RELEASE() = default;

  void lock() LOCKSTEP_ACQUIRE() { lock_.lock(); }
  void unlock() LOCKSTEP_RELEASE() { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

/// A condition for threads that hold a mutex: they get it back when the wait ends. Waits may end
/// without reason, so they stand in a loop. Where a stop token shall end a wait, too, use a
/// std::condition_variable_any, which takes a MutexLock.
class Condition : private NonCopyable {
 public:
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  void wait_for(MutexLock& lock, std::chrono::nanoseconds longest) {
    condition_.wait_for(lock.lock_, longest);
  }
  /// Waits until over(), but not longer than `longest`. Returns the last value of over(), which is
  /// called with the mutex: a lambda has LOCKSTEP_REQUIRES.
  template <typename Over>
  bool wait_for(MutexLock& lock, std::chrono::nanoseconds longest, const Over& over) {
    return condition_.wait_for(lock.lock_, longest, over);
  }

 private:
  std::condition_variable condition_;
};

/// Waits for `pause`, or until `stop` is requested. Returns true if it is requested.
[[nodiscard]] inline bool stopped_within(std::chrono::nanoseconds pause,
                                         const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_for(lock, stop, pause, [] { return false; });
  return stop.stop_requested();
}

}  // namespace lockstep
