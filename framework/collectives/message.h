#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/reduce/element_type.h"

namespace lockstep {

// What collectives share: leaves become messages, one a dtype, and messages become leaves.

using Leaves = std::vector<at::Tensor>;

/// The wire's name for a dtype. Throws ValueError, naming `call`, for those that collectives do not
/// know (complex, quantized).
[[nodiscard]] ElementType element_type(at::ScalarType type, const AxisCall& call);

/// Throws ValueError unless every leaf is a defined dense tensor on the CPU of a dtype that
/// collectives know.
void check_leaves(const Leaves& leaves, const AxisCall& call);

/// The tensor's values in memory, one behind the other: a copy unless they are that already. A view
/// that is negated lazily (a conjugate's imaginary part, for example) is negated.
[[nodiscard]] at::Tensor as_message(const at::Tensor& tensor);

/// The memory of a contiguous tensor.
[[nodiscard]] std::span<std::byte> bytes_of(const at::Tensor& contiguous);

/// Indices of leaves with the same dtype, one list a dtype, in the order in which dtypes first
/// occur.
[[nodiscard]] std::vector<std::vector<std::size_t>> by_dtype(const Leaves& leaves);

/// `count` elements of the contiguous tensor `flat` from `offset` on, as a tensor of shape `sizes`
/// that shares its memory. Unlike a view, autograd takes it for a tensor of its own.
[[nodiscard]] at::Tensor part_of(const at::Tensor& flat, std::int64_t offset,
                                 at::IntArrayRef sizes);

/// Runs `transfer`; what fails in it gains the call's description.
template <typename Transfer>
void communicate(const AxisCall& call, const Transfer& transfer) {
  try {
    transfer();
  } catch (const CommError& error) {
    error.rethrow_with(call.text() + ": ");
  }
}

/// `dimension` in [0, dimensions), counted from the end if negative. Throws ValueError with `what`.
[[nodiscard]] std::int64_t wrap_dimension(std::int64_t dimension, std::int64_t dimensions,
                                          const char* what, const AxisCall& call);

}  // namespace lockstep
