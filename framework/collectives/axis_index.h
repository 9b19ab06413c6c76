#pragma once

#include <cstdint>
#include <source_location>
#include <type_traits>

#include "framework/axes/axis_names.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// Returns this replica's index along the axis, in [0, axis_size(axis_name)); for several names the
/// row-major index over them. Throws NameError if a name is not bound. As jax.lax.axis_index.
///
///   axis_index({"a", "b"}) = axis_index("a") * axis_size("b") + axis_index("b")
///
///   replica  y
///   0        0
///   1        1
///   2        2
///
/// No derivative: the number depends on no tensor. No communication.
[[nodiscard]] std::int64_t axis_index(const AxisNames& axis_name,
                                      std::source_location where = std::source_location::current());

/// Returns axis_index as an int64 tensor of shape [], for tensor arithmetic (at::where,
/// index_select). In a shard_map with check_vma, which refuses axis_index, it varies over the axis.
///
///   replica  y
///   0        0
///   1        1
///   2        2
///
/// No derivative: its dtype has none.
[[nodiscard]] Tensor axis_index_tensor(
    const AxisNames& axis_name, std::source_location where = std::source_location::current());

/// Returns how many replicas the axis has. As jax.lax.axis_size.
///
///   axis_size({"a", "b"}) = axis_size("a") * axis_size("b")
///
///   replica  y
///   0        3
///   1        3
///   2        3
///
/// No derivative, and no communication.
[[nodiscard]] std::int64_t axis_size(const AxisNames& axis_name,
                                     std::source_location where = std::source_location::current());

/// Returns this replica's rows of a tensor that is the same on all: shard() of its first dimension.
/// Parts differ by one row at most, and may be empty: backward(loss, {.samples = part.size(0)})
/// weighs them. For [0 1 2 3 4 5]:
///
///   replica  y
///   0        [0 1]
///   1        [2 3]
///   2        [4 5]
///
/// The result is a view. No communication. Throws ValueError for a tensor without dimensions.
[[nodiscard]] Tensor own_part(const Tensor& tensor, const AxisNames& axis_name,
                              std::source_location where = std::source_location::current());

/// Without an axis this doesn't compile, and says that its name is needed.
template <typename T = void>
std::int64_t axis_index() {
  static_assert(!std::is_void_v<T>, "lockstep: axis_index needs the name of an axis");
  return 0;
}
/// Without an axis this doesn't compile, and says that its name is needed.
template <typename T = void>
std::int64_t axis_size() {
  static_assert(!std::is_void_v<T>, "lockstep: axis_size needs the name of an axis");
  return 0;
}

}  // namespace lockstep
