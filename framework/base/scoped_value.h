#pragma once

namespace lockstep {

/// Gives a variable another value while it lives. Only this thread writes to the variable; others
/// may read it if it is atomic.
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
