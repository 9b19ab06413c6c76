#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/mutex.h"

namespace lockstep::comm {

/// An error that ends the replicas of a map or job, or a group's verbs, set once: when a replica or
/// the caller of the map fails. Any thread may use a Cancellation.
class Cancellation {
 public:
  /// Is cancelled with `outer`, too: the Cancellation of the outer map, or of the connections used.
  explicit Cancellation(std::shared_ptr<const Cancellation> outer = nullptr)
      : outer_(std::move(outer)) {}

  /// Cancels with `error`, unless cancelled before. Returns true if this call was the first.
  bool cancel(const std::exception_ptr& error) {
    const MutexLock lock(mutex_);
    if (is_cancelled_) return false;
    error_ = error;
    return is_cancelled_ = true;
  }
  /// Cancels with Aborted(reason).
  bool cancel(const std::string& reason) {
    return cancel(std::make_exception_ptr(Aborted(reason)));
  }
  /// Throws the error if this or an outer Cancellation is cancelled.
  void check() const {
    if (const auto error = reason()) std::rethrow_exception(error);
  }
  /// Returns the error that check() throws; nullptr if it throws none.
  [[nodiscard]] std::exception_ptr reason() const noexcept {
    if (is_cancelled_) return error();
    return outer_ ? outer_->reason() : nullptr;
  }
  [[nodiscard]] bool is_cancelled() const noexcept {
    return is_cancelled_ || (outer_ && outer_->is_cancelled());
  }
  /// Returns the error of this Cancellation, not of an outer one; nullptr if it is not cancelled.
  [[nodiscard]] std::exception_ptr error() const noexcept {
    const MutexLock lock(mutex_);
    return error_;
  }

 private:
  std::shared_ptr<const Cancellation> outer_;
  mutable Mutex mutex_;
  std::atomic<bool> is_cancelled_{false};
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::comm
