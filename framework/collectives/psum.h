#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <type_traits>
#include <utility>

#include "framework/axes/environment.h"
#include "framework/collectives/operand.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// Options of psum, pmean, pmax and pmin.
struct ReduceOptions {
  AxisIndexGroups axis_index_groups = {};  ///< of any sizes: each reduces alone
};

namespace collectives {

enum class Reduction { sum, invariant_sum, mean, max, min };

Leaves reduce_leaves(const AxisCall& call, const Leaves& leaves, Reduction reduction,
                     const ReduceOptions& options);
// Without `copies` the results are the operands themselves, for callers that make tensors of them.
Leaves pvary_leaves(const AxisCall& call, const Leaves& leaves, bool copies = true);
// Reduces a number as a tensor of one element.
at::Scalar reduce_number(Reduction reduction, const AxisCall& call, const at::Scalar& x,
                         at::ScalarType dtype, const ReduceOptions& options);

template <typename T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, long double>;
template <typename T>
concept Reducible = Tree<T> || Number<T>;

template <Reduction reduction, Reducible T>
auto reduce(const AxisCall& call, const T& x, const ReduceOptions& options) {
  if constexpr (Tree<T>) {
    return on_leaves(
        x, [&](const Leaves& leaves) { return reduce_leaves(call, leaves, reduction, options); });
  } else if constexpr (std::same_as<T, float>) {
    return reduce_number(reduction, call, x, at::kFloat, options).toFloat();
  } else if constexpr (std::same_as<T, double> || reduction == Reduction::mean) {
    return reduce_number(reduction, call, static_cast<double>(x), at::kDouble, options).toDouble();
  } else {
    using Wide = std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>;
    call.require(std::in_range<std::int64_t>(static_cast<Wide>(x)), x,
                 " is beyond the numbers of int64, in which it works");
    using Result = std::conditional_t<reduction == Reduction::sum, std::int64_t, T>;
    const auto number = static_cast<std::int64_t>(x);
    return static_cast<Result>(reduce_number(reduction, call, number, at::kLong, options).toLong());
  }
}

}  // namespace collectives

/// Returns the sum over the replicas of the axis (or of this replica's group), leaf by leaf, the
/// same bits on each: added in the order that reduce() (reduce/reduce.h) fixes. Shapes and dtypes
/// stay, except that booleans are counted in int64; integers wrap around, half types are
/// accumulated in float32. All replicas call it with trees built alike, down to a map's keys
/// (CollectiveMismatch); leaves of one dtype travel in one message. Without leaves or elements
/// nothing travels, but all meet. A number is summed as a tensor of one element: integers give
/// int64_t. Numbers and other static values inside of a tree stay as they are. (So psum(1, "i") is
/// the axis size, which axis_size("i") gives without communication.) As jax.lax.psum.
///
/// With x[r] for replica r's x, y[r] for its result, and dx and dy for the gradients of these:
///
///   y[r]  = x[0] + x[1] + … + x[N-1]
///   dx[r] = dy[0] + dy[1] + … + dy[N-1]
///
///   replica  x      → y         dy     → dx
///   0        [1 2]    [9 12]    [1 0]    [3 1]
///   1        [3 4]    [9 12]    [0 1]    [3 1]
///   2        [5 6]    [9 12]    [2 0]    [3 1]
///
/// Derivative: psum of the gradients (the transpose; the gradient of the sum of all replicas'
/// results). Throws NameError and ValueError as replicas_of, ValueError for leaves that are
/// undefined, not on the CPU, sparse or complex, CommError when the job fails.
template <collectives::Reducible T>
[[nodiscard]] auto psum(const T& x, const AxisNames& axis_name, const ReduceOptions& options = {},
                        std::source_location where = std::source_location::current()) {
  return collectives::reduce<collectives::Reduction::sum>({"psum", axis_name, where}, x, options);
}

/// psum for a result that all replicas of the axis use alike, as one value. Its derivative is
/// pvary: each replica gets its own gradient, not the sum of all. See pvary, its transpose. As
/// jax.lax.psum in a shard_map with check_vma. Errors: as psum.
///
///   y[r]  = x[0] + x[1] + … + x[N-1]
///   dx[r] = dy[r]
///
///   replica  x      → y         dy     → dx
///   0        [1 2]    [9 12]    [7 8]    [7 8]
///   1        [3 4]    [9 12]    [7 8]    [7 8]
///   2        [5 6]    [9 12]    [7 8]    [7 8]
template <Tree T>
[[nodiscard]] T psum_invariant(const T& x, const AxisNames& axis_name,
                               std::source_location where = std::source_location::current()) {
  return collectives::reduce<collectives::Reduction::invariant_sum>(
      {"psum_invariant", axis_name, where}, x, {});
}

/// Returns a copy of `x`, which is the same on all replicas of the axis, for each replica to use in
/// its own way. Its derivative is psum_invariant of the gradients, so that every replica gets the
/// gradient of all uses:
///
///   y[r]  = x[r]
///   dx[r] = dy[0] + dy[1] + … + dy[N-1]
///
///   replica  x      → y        dy     → dx
///   0        [1 2]    [1 2]    [1 0]    [3 1]
///   1        [1 2]    [1 2]    [0 1]    [3 1]
///   2        [1 2]    [1 2]    [2 0]    [3 1]
///
/// Tensor parallelism stands on this pair, pvary and psum_invariant:
///
///   const Tensor hidden = at::relu(at::matmul(pvary(x, "model"), own_columns_of_w1));
///   return psum_invariant(at::matmul(hidden, own_rows_of_w2), "model");
///
/// All replicas call it. As jax.lax.pcast(x, axis_name, to="varying"), once jax.lax.pvary. JAX's
/// does nothing without check_vma; this one is the same in every map. Throws as psum.
template <Tree T>
[[nodiscard]] T pvary(const T& x, const AxisNames& axis_name,
                      std::source_location where = std::source_location::current()) {
  return collectives::on_leaves(x, [&](const Leaves& leaves) {
    return collectives::pvary_leaves({"pvary", axis_name, where}, leaves);
  });
}

/// Returns psum divided by the number of replicas summed (of this replica's own group where groups
/// differ), rounded once: half types are divided in float32. Integers and booleans are summed in
/// int64 and give float32, integers that are C++ numbers double. As jax.lax.pmean, which rounds the
/// sum of half types too. Derivative: pmean of the gradients. Errors: as psum.
///
///   y[r]  = (x[0] + x[1] + … + x[N-1]) / N
///   dx[r] = (dy[0] + dy[1] + … + dy[N-1]) / N
///
///   replica  x      → y        dy     → dx
///   0        [1 2]    [3 4]    [3 0]    [1 2]
///   1        [3 4]    [3 4]    [0 6]    [1 2]
///   2        [5 6]    [3 4]    [0 0]    [1 2]
template <collectives::Reducible T>
[[nodiscard]] auto pmean(const T& x, const AxisNames& axis_name, const ReduceOptions& options = {},
                         std::source_location where = std::source_location::current()) {
  return collectives::reduce<collectives::Reduction::mean>({"pmean", axis_name, where}, x, options);
}

/// Returns the largest value over the replicas, element by element; on booleans "any"; NaN if one
/// is NaN. As jax.lax.pmax. Derivative: the psum of the gradients goes to the replicas that hold
/// the extremum, shared equally among ties. Errors: as psum.
///
///   y[r]  = max(x[0], x[1], …, x[N-1])
///   dx[r] = (dy[0] + dy[1] + … + dy[N-1]) / ties  where x[r] is y[r], else 0
///
///   replica  x      → y        dy     → dx
///   0        [1 9]    [5 9]    [2 1]    [0 3]
///   1        [5 2]    [5 9]    [0 1]    [2 0]
///   2        [5 4]    [5 9]    [2 1]    [2 0]
template <collectives::Reducible T>
[[nodiscard]] auto pmax(const T& x, const AxisNames& axis_name, const ReduceOptions& options = {},
                        std::source_location where = std::source_location::current()) {
  return collectives::reduce<collectives::Reduction::max>({"pmax", axis_name, where}, x, options);
}

/// Returns the smallest value over the replicas, element by element; on booleans "all". See pmax.
///
///   y[r]  = min(x[0], x[1], …, x[N-1])
///   dx[r] = (dy[0] + dy[1] + … + dy[N-1]) / ties  where x[r] is y[r], else 0
///
///   replica  x      → y        dy     → dx
///   0        [1 9]    [1 2]    [2 1]    [4 0]
///   1        [5 2]    [1 2]    [0 1]    [0 3]
///   2        [5 4]    [1 2]    [2 1]    [0 0]
template <collectives::Reducible T>
[[nodiscard]] auto pmin(const T& x, const AxisNames& axis_name, const ReduceOptions& options = {},
                        std::source_location where = std::source_location::current()) {
  return collectives::reduce<collectives::Reduction::min>({"pmin", axis_name, where}, x, options);
}

#define LOCKSTEP_DETAIL_WITH_GROUPS(operation)                                                     \
  template <collectives::Reducible T, std::same_as<AxisIndexGroups> G = AxisIndexGroups>           \
  [[nodiscard]] auto operation(const T& x, const AxisNames& axis_name, const G& axis_index_groups, \
                               std::source_location where = std::source_location::current()) {     \
    return operation(x, axis_name, ReduceOptions{axis_index_groups}, where);                       \
  }
/// psum with groups in place of options: `psum(x, "i", {{0, 1}, {2, 3}})`.
LOCKSTEP_DETAIL_WITH_GROUPS(psum)
/// pmean with groups in place of options: each is divided by its own size.
LOCKSTEP_DETAIL_WITH_GROUPS(pmean)
/// pmax with groups in place of options.
LOCKSTEP_DETAIL_WITH_GROUPS(pmax)
/// pmin with groups in place of options.
LOCKSTEP_DETAIL_WITH_GROUPS(pmin)
#undef LOCKSTEP_DETAIL_WITH_GROUPS

LOCKSTEP_NEEDS_AXIS(psum)
LOCKSTEP_NEEDS_AXIS(psum_invariant)
LOCKSTEP_NEEDS_AXIS(pmean)
LOCKSTEP_NEEDS_AXIS(pmax)
LOCKSTEP_NEEDS_AXIS(pmin)

}  // namespace lockstep
