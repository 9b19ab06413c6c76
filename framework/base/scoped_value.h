#pragma once

namespace lockstep {

/// Sets a variable to another value, and restores it when destroyed. Only this thread writes to the
/// variable; other threads may read it if it is atomic.
template <typename T, typename Variable = T>
class ScopedValue {
 public:
  ScopedValue(Variable& variable, T value) noexcept : variable_(variable), outer_(variable) {
    variable = value;
  }
  ~ScopedValue() { variable_ = outer_; }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  Variable& variable_;
  T outer_;
};

}  // namespace lockstep
