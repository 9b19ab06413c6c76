#pragma once

#include <chrono>
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

#include "framework/replicas/map.h"

namespace lockstep {

struct VmapOptions {
  /// The name by which the function's collectives call the lanes.
  std::string axis_name = "i";
  InAxes in_axes = {};
  OutAxes out_axes = 0;
  /// The number of lanes; 0: what the arguments' lengths say.
  std::int64_t axis_size = 0;
  /// How long a lane waits for the others in a collective, from when a lane has handed over last.
  std::chrono::milliseconds timeout{60'000};
};

/// As pmap, with lanes instead of replicas: threads of which one runs at a time and hands over
/// where it waits for others in a collective, so that there may be a thousand of them. They are
/// always this process': in a launched job a vmap's axis has the lanes of this replica alone, and
/// its collectives may name the job's axis beside the own one. Gives the bits of a pmap with as
/// many replicas. As jax.vmap with an axis name; functions are run lane by lane, not rewritten.
template <typename F>
[[nodiscard]] auto vmap(F f, VmapOptions options = {},
                        std::source_location where = std::source_location::current()) {
  return [f = std::move(f), options = std::move(options),
          where]<typename... Args>(const Args&... args) {
    return map_detail::run_axis_map({"vmap", options.axis_name, options.in_axes, options.out_axes,
                                     options.axis_size, /*lanes=*/true, 0, options.timeout, where},
                                    f, args...);
  };
}

}  // namespace lockstep
