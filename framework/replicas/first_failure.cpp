#include "framework/replicas/first_failure.h"

#include <string>
#include <system_error>
#include <utility>

#include <c10/util/Exception.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return lockstep::text_of(known);
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

int doubt_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& ours) {
    return lockstep::doubt_of(ours.type());
  } catch (...) {
    return 0;
  }
}

}  // namespace

int doubt_of(std::string_view type) noexcept {
  if (type == "Aborted" || type == "ReplicaLost") return 3;
  if (type == "CommError") return 2;
  // A replica that does not come in time, or at another place, may have failed unseen.
  return type == "Timeout" || type == "CollectiveMismatch" ? 1 : 0;
}

std::string text_of(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    return torch_error->what_without_backtrace();
  }
  return error.what();
}

FirstFailure::FirstFailure(std::int64_t first, std::function<void(const std::string&)> end_others)
    : first_(first), end_others_(std::move(end_others)) {}

void FirstFailure::record(std::int64_t index) noexcept {
  const std::exception_ptr error = std::current_exception();
  const int doubt = doubt_of(error);
  {
    const std::lock_guard lock(mutex_);
    const bool first = !error_;
    if (!first && doubt >= doubt_) return;
    error_ = error;
    index_ = first_ + index;
    doubt_ = doubt;
    if (!first) return;
  }
  end_others_(lockstep::str("replica ", first_ + index, " failed: ", text_of(error)));
}

bool FirstFailure::happened() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void FirstFailure::rethrow() const {
  const std::lock_guard lock(mutex_);
  if (!error_) return;
  const std::string prefix = lockstep::str("replica ", index_, ": ");
  try {
    std::rethrow_exception(error_);
  } catch (const Error& error) {
    error.rethrow_with(prefix);
  } catch (...) {
    std::throw_with_nested(ReplicaError(prefix + text_of(error_)));
  }
}

std::vector<std::thread> start_threads(std::int64_t count, FirstFailure& failure,
                                       const std::function<void(std::int64_t)>& body,
                                       const std::function<void()>& ended) {
  std::vector<std::thread> threads;
  const auto run = [&failure, body, ended](std::int64_t index) {
    try {
      body(index);
    } catch (...) {
      failure.record(index);
    }
    ended();
  };
  for (std::int64_t index = 0; index < count; ++index) {
    try {
      threads.emplace_back(run, index);
    } catch (const std::system_error& error) {
      try {
        throw Error(lockstep::str("one of ", count, " threads cannot be started: ", error.what()));
      } catch (...) {
        failure.record(index);
      }
      for (; index < count; ++index) ended();
    }
  }
  return threads;
}

}  // namespace lockstep
