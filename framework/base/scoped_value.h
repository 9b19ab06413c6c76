#pragma once

#include "framework/base/non_copyable.h"

namespace lockstep {

/// Sets a variable to another value, and restores it when destroyed. Only this thread writes to the
/// variable; other threads may read it if it is atomic.
template <typename T, typename Variable = T>
class ScopedValue : private NonCopyable {
 public:
  ScopedValue(Variable& variable, T value) noexcept : variable_(variable), outer_(variable) {
    variable = value;
  }
  ~ScopedValue() { variable_ = outer_; }

 private:
  Variable& variable_;
  T outer_;
};

}  // namespace lockstep
