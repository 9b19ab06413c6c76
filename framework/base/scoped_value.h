#pragma once

#include <utility>

namespace lockstep {

/// Gives a variable, one of this thread's, another value while it lives.
template <typename T>
class ScopedValue {
 public:
  ScopedValue(T& variable, T value) noexcept
      : variable_(variable), outer_(std::exchange(variable, value)) {}
  ~ScopedValue() { variable_ = outer_; }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  T& variable_;
  T outer_;
};

}  // namespace lockstep
