#pragma once

#include <ATen/core/Tensor.h>

#include "framework/training/block.h"

namespace lockstep {

/// block(input), without keeping the block's activations for the backward: this keeps `input`
/// alone, and the backward runs the block again (activation checkpointing; Chen et al., Training
/// Deep Nets with Sublinear Memory Cost, 2016). As torch.utils.checkpoint.
///
///   for (const auto& layer : layers_) x = lockstep::recompute(*layer, x);  // not (*layer)(x)
///
/// Values and gradients have the bits of block(input), also at stage 3. KeyedModules and LibTorch's
/// own operators draw the same again (keyed_draws.h; outside of a trainer what LibTorch's draw has
/// keys that its process-wide generator makes). BatchNorm counts the samples once, and its
/// collectives run once more, in the backward, on all replicas. The forward must do the same in its
/// second run; apart from these it must not change buffers. Where no gradient is recorded this is
/// block(input). Higher derivatives work as far as the block's do.
///
/// The block belongs to a shared_ptr, as submodules do. ValueError if it does not, and for a result
/// that is not floating. Error in the backward if the second run draws more often, or less. With
/// newer versions of LibTorch, hooks registered on the block's parameters see each gradient twice.
[[nodiscard]] at::Tensor recompute(Block& block, const at::Tensor& input);

}  // namespace lockstep
