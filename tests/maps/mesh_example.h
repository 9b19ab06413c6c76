#pragma once

#include <ATen/core/Tensor.h>

// Tensor parallelism, and a pipeline, inside data parallelism: the example of
// collectives/README.md.

namespace lockstep::testing {

/// Checks loss and gradients of a tensor-parallel MLP on a mesh of data and model, 2 by 2, against
/// the same mathematics on whole tensors. Runs in this process, or in a job of 1, 2 or 4 members.
/// Throws an error that says what is wrong.
void check_tensor_parallel_mlp();

/// Checks the same of a pipeline of two stages.
void check_pipeline();

}  // namespace lockstep::testing
