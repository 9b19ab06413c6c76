#include "framework/comm/run_lock.h"

#include <utility>

#include "framework/base/waited.h"

namespace lockstep::comm {
namespace {
thread_local RunLock* this_thread_lock = nullptr;
}  // namespace

void RunLock::take() {
  MutexLock lock(mutex_);
  const auto self = std::this_thread::get_id();
  if (holder_ == self) return;  // handed over to it in line
  if (holder_ == std::thread::id()) {
    given_last_ = std::chrono::steady_clock::now();
    holder_ = self;
    return;
  }
  Waiter waiter;
  if (waiting_.insert_or_assign(self, &waiter).second) line_.push_back(self);
  Waited waited;
  while (!waiter.granted) {
    waited.look(given_last_);
    if (line_.front() == self && waited.late() >= patience_) {
      hand_over();
    } else {
      waiter.granted_changed.wait_for(lock, look_around_);
    }
  }
}

void RunLock::line_up(std::thread::id thread) {
  const MutexLock lock(mutex_);
  waiting_.emplace(thread, nullptr);
  line_.push_back(thread);
  if (holder_ == std::thread::id()) hand_over();
}

void RunLock::give() noexcept {
  const MutexLock lock(mutex_);
  if (holder_ == std::this_thread::get_id()) hand_over();
}

// A waiter's condition lives in its own frame, which it leaves when granted.
void RunLock::hand_over() noexcept {
  given_last_ = std::chrono::steady_clock::now();
  holder_ = {};
  if (line_.empty()) return;
  holder_ = line_.front();
  line_.pop_front();
  const auto next = waiting_.find(holder_);
  if (next->second != nullptr) {
    next->second->granted = true;
    next->second->granted_changed.notify_one();
  }
  waiting_.erase(next);
}

RunLock* current_run_lock() noexcept {
  return this_thread_lock;
}

RunLockScope::RunLockScope(RunLock* run_lock) : outer_(std::exchange(this_thread_lock, run_lock)) {
  if (run_lock != nullptr) run_lock->take();
}

RunLockScope::~RunLockScope() {
  if (this_thread_lock != nullptr) this_thread_lock->give();
  this_thread_lock = outer_;
}

RunLockRelease::RunLockRelease() noexcept : run_lock_(this_thread_lock) {
  if (run_lock_ != nullptr) run_lock_->give();
}

RunLockRelease::~RunLockRelease() {
  if (run_lock_ != nullptr) run_lock_->take();
}

}  // namespace lockstep::comm
