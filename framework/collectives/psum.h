#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <type_traits>
#include <vector>

#include "framework/axes/axis_names.h"
#include "framework/axes/environment.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// Options of psum, pmean, pmax and pmin.
struct ReduceOptions {
  /// Reduce within each of these groups instead of over the whole axis; their sizes may differ.
  AxisIndexGroups axis_index_groups = {};
};

namespace collectives_detail {

enum class Reduction { sum, invariant_sum, mean, max, min };

std::vector<Tensor> reduce_leaves(Reduction reduction, const std::vector<Tensor>& leaves,
                                  const AxisNames& axis_name, const ReduceOptions& options,
                                  std::source_location where);
std::int64_t group_size(const char* operation, const AxisNames& axis_name,
                        const ReduceOptions& options, std::source_location where);

template <typename T>
T reduce_tree(Reduction reduction, const T& x, const AxisNames& axis_name,
              const ReduceOptions& options, std::source_location where) {
  return tree_unflatten(x, reduce_leaves(reduction, tree_leaves(x), axis_name, options, where));
}

template <typename T>
concept Number = std::is_arithmetic_v<T>;

}  // namespace collectives_detail

/// The sum over the replicas of the axis (or of this replica's group), leaf by leaf, the same bits
/// on each: added in the order that reduce() (comm/reduce.h) fixes. Shapes and dtypes stay, except
/// that booleans are counted in int64; integers wrap around, half types are accumulated in float32.
/// All replicas call it with trees built alike; leaves of one dtype travel in one message. As
/// jax.lax.psum.
///
/// Derivative: psum of the gradients (the transpose; the gradient of the sum of all replicas'
/// results). Throws NameError and ValueError as replicas_of, ValueError for leaves that are
/// undefined, not on the CPU, sparse or complex, CommError when the job fails.
template <Tree T>
[[nodiscard]] T psum(const T& x, const AxisNames& axis_name, const ReduceOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  return collectives_detail::reduce_tree(collectives_detail::Reduction::sum, x, axis_name, options,
                                         where);
}

/// psum of a number that is the same everywhere: the number times the size of the axis (or of this
/// replica's group), without communication. psum(1, "i") is the axis size.
template <collectives_detail::Number N>
[[nodiscard]] auto psum(N x, const AxisNames& axis_name, const ReduceOptions& options = {},
                        std::source_location where = std::source_location::current()) {
  const auto size = collectives_detail::group_size("psum", axis_name, options, where);
  if constexpr (std::floating_point<N>) {
    return x * static_cast<N>(size);
  } else {
    return static_cast<std::int64_t>(x) * size;
  }
}

/// psum for a result that is used alike on all replicas of the axis, as one value: its derivative
/// is pvary of the gradients, each replica's own, instead of their sum. See pvary (pvary.h), its
/// transpose. As what jax.lax.psum is in a shard_map with check_vma. Errors: as psum.
template <Tree T>
[[nodiscard]] T psum_invariant(const T& x, const AxisNames& axis_name,
                               std::source_location where = std::source_location::current()) {
  return collectives_detail::reduce_tree(collectives_detail::Reduction::invariant_sum, x, axis_name,
                                         {}, where);
}

/// psum divided by the number of replicas summed (those of this replica's own group where groups
/// differ), rounded once: half types are divided in float32. Integers and booleans are summed in
/// int64 and give float32. As jax.lax.pmean, which rounds the sum of half types too.
/// Derivative: pmean of the gradients. Errors: as psum.
template <Tree T>
[[nodiscard]] T pmean(const T& x, const AxisNames& axis_name, const ReduceOptions& options = {},
                      std::source_location where = std::source_location::current()) {
  return collectives_detail::reduce_tree(collectives_detail::Reduction::mean, x, axis_name, options,
                                         where);
}

/// The largest value over the replicas, element by element; on booleans "any"; NaN if one is NaN.
/// As jax.lax.pmax. Derivative: the psum of the gradients goes to the replicas that hold the
/// extremum, shared equally among ties. Errors: as psum.
template <Tree T>
[[nodiscard]] T pmax(const T& x, const AxisNames& axis_name, const ReduceOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  return collectives_detail::reduce_tree(collectives_detail::Reduction::max, x, axis_name, options,
                                         where);
}

/// The smallest value over the replicas, element by element; on booleans "all". See pmax.
template <Tree T>
[[nodiscard]] T pmin(const T& x, const AxisNames& axis_name, const ReduceOptions& options = {},
                     std::source_location where = std::source_location::current()) {
  return collectives_detail::reduce_tree(collectives_detail::Reduction::min, x, axis_name, options,
                                         where);
}

}  // namespace lockstep
