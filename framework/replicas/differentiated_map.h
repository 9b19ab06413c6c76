#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/replicas/replica_threads.h"
#include "framework/replicas/run_map.h"

namespace lockstep {

// How a differentiated map describes itself to the job's other members and in messages.

/// The call, with which of the inputs the map is differentiated by.
[[nodiscard]] MapCall differentiated_by(MapCall options, const std::vector<MapInput>& inputs);

/// The call that runs a map's backward for the `run`-th time. Its number is its own, and follows
/// from the map's. `forward` and `map_calls` are those of the map's replicas, of all levels;
/// `differentiated`: whether that backward is to be differentiated, too.
[[nodiscard]] MapCall call_of_backward(const MapCall& forward,
                                       const std::vector<std::uint64_t>& map_calls,
                                       std::uint64_t run, bool differentiated);

/// ValueError for a complex result that requires a gradient.
void check_real(const MapCall& options, const std::vector<at::Tensor>& results);

}  // namespace lockstep
