#include "framework/comm/run_lock.h"

#include <algorithm>
#include <utility>

#include "framework/base/waited.h"

namespace lockstep::comm {
namespace {
thread_local RunLock* this_thread_lock = nullptr;
}  // namespace

void RunLock::take() {
  MutexLock lock(mutex_);
  Thread& self = threads_[std::this_thread::get_id()];
  if (holder_ == nullptr) {
    given_last_ = std::chrono::steady_clock::now();
    holder_ = &self;
  }
  if (holder_ != &self) join_line(self);
  Waited waited;
  while (holder_ != &self && !self.was_handed_over) {
    waited.look(given_last_);
    if (line_.front() == &self && waited.late() >= patience_) {
      hand_over();
    } else {
      self.turn.wait_for(lock, look_around_);
    }
  }
  self.was_handed_over = false;
}

void RunLock::line_up(std::thread::id thread) {
  const MutexLock lock(mutex_);
  join_line(threads_[thread]);
  if (holder_ == nullptr) hand_over();
}

bool RunLock::wait_for_turn(std::chrono::milliseconds limit) {
  MutexLock lock(mutex_);
  Thread& self = threads_[std::this_thread::get_id()];
  if (!self.was_handed_over) self.turn.wait_for(lock, std::min(limit, look_around_));
  // A thread that may need no turn must not stand in line before one whose patience may end.
  if (!self.was_handed_over && self.is_in_line && patience_ != kForever) {
    std::erase(line_, &self);
    self.is_in_line = false;
  }
  return self.was_handed_over;
}

void RunLock::give() noexcept {
  const MutexLock lock(mutex_);
  const auto self = threads_.find(std::this_thread::get_id());
  if (self == threads_.end()) return;
  self->second.was_handed_over = false;
  if (holder_ == &self->second) hand_over();
}

void RunLock::join_line(Thread& thread) {
  if (thread.is_in_line || thread.was_handed_over) return;
  thread.is_in_line = true;
  line_.push_back(&thread);
}

void RunLock::hand_over() noexcept {
  given_last_ = std::chrono::steady_clock::now();
  holder_ = nullptr;
  if (line_.empty()) return;
  holder_ = line_.front();
  line_.pop_front();
  holder_->is_in_line = false;
  holder_->was_handed_over = true;
  holder_->turn.notify_one();
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
