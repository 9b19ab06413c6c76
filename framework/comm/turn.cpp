#include "framework/comm/turn.h"

#include <utility>

#include "framework/base/waited.h"

namespace lockstep {
namespace {
thread_local Turn* this_thread_turn = nullptr;
}  // namespace

void Turn::take() {
  std::unique_lock lock(mutex_);
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

void Turn::line_up(std::thread::id thread) {
  const std::lock_guard lock(mutex_);
  waiting_.emplace(thread, nullptr);
  line_.push_back(thread);
  if (holder_ == std::thread::id()) hand_over();
}

void Turn::give() noexcept {
  const std::lock_guard lock(mutex_);
  if (holder_ == std::this_thread::get_id()) hand_over();
}

// Under the lock: a waiter's condition lives in its own frame, which it leaves when granted.
void Turn::hand_over() noexcept {
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
