#pragma once

#include <source_location>

#include "framework/axes/environment.h"
#include "framework/tree/tree.h"

namespace lockstep {

namespace collectives_detail {
// With `copies` false, the results are the operands themselves, for callers that make new tensors
// of them.
Leaves pvary_leaves(const AxisCall& call, const Leaves& leaves, bool copies = true);
}  // namespace collectives_detail

/// A copy of `x`, which is the same on all replicas of the axis, for each replica to use in its own
/// way. Its derivative is psum_invariant of the gradients, so that every replica gets the gradient
/// of all uses. With psum_invariant the pair that tensor parallelism stands on:
///
///   const Tensor hidden = at::relu(at::matmul(pvary(x, "model"), own_columns_of_w1));
///   return psum_invariant(at::matmul(hidden, own_rows_of_w2), "model");
///
/// All replicas call it. As jax.lax.pcast(x, axis_name, to="varying"), once jax.lax.pvary, which is
/// nothing at all without check_vma; here it is the same in every map. Throws as psum.
template <Tree T>
[[nodiscard]] T pvary(const T& x, const AxisNames& axis_name,
                      std::source_location where = std::source_location::current()) {
  return tree_unflatten(
      x, collectives_detail::pvary_leaves({"pvary", axis_name, where}, tree_leaves(x)));
}

}  // namespace lockstep
