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

/// Call this before the memory of `lent`, from lent_part(), is written again. If anyone but the
/// caller, who must hold `lent` once, still holds it or its storage, the storage gets memory of its
/// own with the values of now. Returns whether anyone does.
bool leave_values(const at::Tensor& lent);

}  // namespace lockstep::training
