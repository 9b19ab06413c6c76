#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::training {

/// Puts the memory of `memory`, which lives as long, under all tensors of a storage.
void set_storage_memory(const c10::Storage& storage, const at::Tensor& memory);

/// A contiguous tensor of shape `sizes` in the memory of `flat` from element `offset` on, with a
/// storage of its own: what a trainer lends to the program, until leave_values().
[[nodiscard]] at::Tensor lent_part(const at::Tensor& flat, std::int64_t offset,
                                   at::IntArrayRef sizes);

/// Before the memory of a tensor from lent_part() is written again, of which nobody should hold
/// more than the caller does, who holds it once: gives it, and all that share its storage, memory
/// of their own with the values of now. Returns whether anybody held it.
bool leave_values(const at::Tensor& lent);

}  // namespace lockstep::training
