#include "framework/groups/cancellation.h"

#include "framework/base/errors.h"

namespace lockstep {

void Cancellation::cancel(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (is_cancelled_) return;
  error_ = error;
  is_cancelled_ = true;
}

void Cancellation::cancel(const std::string& reason) {
  cancel(std::make_exception_ptr(Aborted(reason)));
}

void Cancellation::check() const {
  if (is_cancelled_) {
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(error_);
  }
  if (outer_) outer_->check();
}

std::exception_ptr Cancellation::error() const noexcept {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool Cancellation::is_cancelled() const noexcept {
  return is_cancelled_ || (outer_ && outer_->is_cancelled());
}

}  // namespace lockstep
