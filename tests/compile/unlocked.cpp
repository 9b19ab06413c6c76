// What clang must refuse, each once: see tests/locks.sh.

#include "framework/base/mutex.h"

namespace {

struct Counter {
  lockstep::Mutex mutex;
  int guarded LOCKSTEP_GUARDED_BY(mutex) = 0;

  void add() LOCKSTEP_REQUIRES(mutex) { ++guarded; }
  int read_unlocked() const { return guarded; }
  void write_after_unlocking() {
    lockstep::MutexLock lock(mutex);
    lock.unlock();
    guarded = 1;
  }
  void call_unlocked() { add(); }
  void keep() { mutex.lock(); }

  // As it is meant, with all that mutex.h has.
  void add_when_wanted(lockstep::Condition& wanted) {
    lockstep::MutexLock lock(mutex);
    while (guarded == 0) wanted.wait(lock);
    wanted.wait_for(lock, std::chrono::seconds(1),
                    [&]() LOCKSTEP_REQUIRES(mutex) { return guarded > 0; });
    lock.unlock();
    lock.lock();
    add();
  }
  bool try_to_add() {
    if (!mutex.try_lock()) return false;
    add();
    mutex.unlock();
    return true;
  }
};

}  // namespace
