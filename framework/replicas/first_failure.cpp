#include "framework/replicas/first_failure.h"

#include <string>
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

}  // namespace

std::string text_of(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    return torch_error->what_without_backtrace();
  }
  return error.what();
}

FirstFailure::FirstFailure(std::function<void(const std::string&)> end_others)
    : end_others_(std::move(end_others)) {}

void FirstFailure::record(std::int64_t index) noexcept {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::current_exception();
    index_ = index;
    text = text_of(error_);
  }
  end_others_(lockstep::str("replica ", index, " failed: ", text));
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

}  // namespace lockstep
