#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// A contiguous tensor for a collective's result, not initialized, as at::empty gives it. A large
/// one's memory is kept when it is freed, for the next of about that size: pages that are new to a
/// process cost more than the collective itself (on a 2-core machine two processes touch 64 MiB of
/// them in 35 to 100 ms, and reduce as much in 9). What is kept is bounded. Any thread.
[[nodiscard]] at::Tensor result_memory(at::IntArrayRef sizes, const at::TensorOptions& options);

/// The same of the shape and dtype of `tensor`.
[[nodiscard]] at::Tensor result_memory_like(const at::Tensor& tensor);

}  // namespace lockstep
