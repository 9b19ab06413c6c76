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

struct VmapOptions {
  /// The name of the lanes' axis in the function's collectives: see PmapOptions.
  std::optional<std::string> axis_name = {};
  InAxes in_axes = {};
  OutAxes out_axes = 0;
  /// The number of lanes; 0: the arguments' length.
  std::int64_t axis_size = 0;
  /// How long a lane waits for the others in a collective, since any lane last handed over.
  std::chrono::milliseconds timeout{60'000};
};

/// Works as pmap, with lanes instead of replicas. Lanes are threads: one runs at a time, and hands
/// over when it waits for others in a collective. So there may be a thousand lanes. All are in this
/// process: in a launched job a vmap's axis has the lanes of this replica alone, and its
/// collectives may also name the job's axis. Gives the bits of a pmap with as many replicas.
/// Follows jax.vmap with an axis name, but functions run lane by lane and are not rewritten.
template <typename F>
[[nodiscard]] auto vmap(F f, VmapOptions options = {},
                        std::source_location where = std::source_location::current()) {
  return map_detail::axis_map({.map = "vmap", .lanes = true, .where = where}, std::move(f),
                              std::move(options));
}

/// Does the same with the axis' name beside the options, as jax.vmap has it: vmap(f, "batch").
template <typename F, typename Name>
requires std::is_convertible_v<const Name&, std::string>
[[nodiscard]] auto vmap(F f, const Name& axis_name, VmapOptions options = {},
                        std::source_location where = std::source_location::current()) {
  options.axis_name = axis_name;
  return vmap(std::move(f), std::move(options), where);
}

}  // namespace lockstep
