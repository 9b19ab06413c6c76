#pragma once

#include <cstdint>

#include <ATen/record_function.h>

#include "framework/base/non_copyable.h"

namespace lockstep {

/// Counts multiply-adds of LibTorch's operators that this thread calls while the object lives: of
/// products of matrices and vectors, convolutions, attention, and recurrent layers, whatever
/// modules call them. Each is counted from its operands' shapes: attention with a mask as without,
/// a convolution at its border as inside. All other operators count nothing. One at a time a
/// thread.
class OperationCount : private NonCopyable {
 public:
  OperationCount();
  ~OperationCount();

  [[nodiscard]] std::int64_t multiply_adds() const noexcept;

 private:
  at::CallbackHandle handle_;
};

}  // namespace lockstep
