#include "framework/comm/turn.h"

#include <utility>

namespace lockstep {
namespace {
thread_local Turn* this_thread_turn = nullptr;
}  // namespace

void Turn::take() {
  std::unique_lock lock(mutex_);
  if (!taken_ || given_up_) {
    taken_ = true;
    return;
  }
  Waiter self;
  waiting_.push_back(&self);
  self.granted_changed.wait(lock, [&] { return self.granted; });
}

void Turn::give() noexcept {
  given_last_ = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) {
    taken_ = false;
    return;
  }
  // Under the lock: the waiter's condition lives in its own frame, which it leaves when granted.
  waiting_.front()->granted = true;
  waiting_.front()->granted_changed.notify_one();
  waiting_.pop_front();
}

void Turn::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  for (Waiter* waiter : waiting_) {
    waiter->granted = true;
    waiter->granted_changed.notify_one();
  }
  waiting_.clear();
}

Turn* current_turn() noexcept {
  return this_thread_turn;
}

TurnScope::TurnScope(Turn* turn) : outer_(std::exchange(this_thread_turn, turn)) {
  if (turn != nullptr) turn->take();
}

TurnScope::~TurnScope() {
  if (this_thread_turn != nullptr) this_thread_turn->give();
  this_thread_turn = outer_;
}

TurnBreak::TurnBreak() noexcept : turn_(this_thread_turn) {
  if (turn_ != nullptr) turn_->give();
}

TurnBreak::~TurnBreak() {
  if (turn_ != nullptr) turn_->take();
}

}  // namespace lockstep
