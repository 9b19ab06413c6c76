#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include "framework/maps/map.h"

namespace lockstep {

struct PmapOptions {
  /// The name of the replicas' axis in the function's collectives. If left out, it is "i" or,
  /// inside a map that has an axis "i" already, a name that no collective can use.
  std::optional<std::string> axis_name = {};
  InAxes in_axes = {};
  OutAxes out_axes = 0;
  /// The number of replicas in this process; 0: the arguments' length.
  std::int64_t axis_size = 0;
  /// Math threads of each replica; 0: the host's cores / its replicas, at least 1.
  std::int64_t threads_per_replica = 0;
  /// How long a replica waits for the others in a collective.
  std::chrono::milliseconds timeout{60'000};
};

/// Returns a function that runs `f` once for each replica, in a thread of its own, with the axis
/// bound, and combines the results. Follows jax.pmap.
///
///   auto step = pmap(f, {.axis_name = "batch", .in_axes = {std::nullopt, 0}});
///   auto result = step(parameters, batch);
///
/// - **Arguments** that are trees are cut along their entry of in_axes, which is removed: replica i
///   gets slice i. All mapped leaves have the same length there, the number of replicas. A number,
///   enum, string, callable or static_argument(x) is static, and passed by reference.
/// - **Sharing.** Arguments are shared with the caller and among the threads: `f` must not change
///   them in place. If `f` returns an argument, or a view of one, the result shares its memory.
/// - **Results** are a tree or nothing, stacked as out_axes says. Static values must be alike.
/// - **Threads** stay for later maps of the same caller, and keep the thread_local variables of
///   `f`. They end with the caller's thread.
/// - **Nesting.** In a replica of a map the inner map runs here, and its function reaches all outer
///   axes by name. In a launched job's function the axis spans all of the job's members instead,
///   and the job's own axis is not bound in it. Each member passes the slices of its own replicas
///   and gets their results; members may have different numbers of replicas.
/// - **Derivatives.** Seen from outside, a map is one node of autograd's graph, whose backward runs
///   every replica's. The gradient of an argument that all replicas share, and of a tensor that `f`
///   captures, is the sum over all replicas. A result that replicas share (std::nullopt in
///   out_axes) is one value. A complex tensor that requires a gradient is a ValueError.
/// - **Derivatives in a job.** A shared result's gradient is that of the member with the axis'
///   first replica; other members' count as zeros. Members must differentiate by the same
///   arguments, else it is a CollectiveMismatch. Members cannot match captured tensors, so a
///   backward by one throws a ValueError: pass it as an argument with std::nullopt in in_axes.
/// - **Errors.** If a replica throws, the others' collectives end and the call throws that first
///   error. An Error keeps its type and gains the replica's index; other exceptions are nested in a
///   ReplicaError. ValueErrors name lengths, ranks and axes that do not fit. Messages name `where`.
template <typename F>
[[nodiscard]] auto pmap(F f, PmapOptions options = {},
                        std::source_location where = std::source_location::current()) {
  return map_detail::axis_map(
      {.map = "pmap", .threads_per_replica = options.threads_per_replica, .where = where},
      std::move(f), std::move(options));
}

/// Does the same with the axis' name beside the options, as jax.pmap has it: pmap(f, "batch").
template <typename F, typename Name>
requires std::is_convertible_v<const Name&, std::string>
[[nodiscard]] auto pmap(F f, const Name& axis_name, PmapOptions options = {},
                        std::source_location where = std::source_location::current()) {
  options.axis_name = axis_name;
  return pmap(std::move(f), std::move(options), where);
}

}  // namespace lockstep
