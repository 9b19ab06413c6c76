#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/replicas/run_map.h"
#include "framework/replicas/team.h"

namespace lockstep {

// What a map that is differentiated says of itself to other members of a job and to people.

/// The options, with which of the inputs the map is differentiated by.
[[nodiscard]] TeamOptions differentiated_by(TeamOptions options,
                                            const std::vector<MapInput>& inputs);

/// The options of the team that runs a map's backward for the `run`-th time: its map call is its
/// own, and follows from the map's. `forward` and `map_calls` are those of the map's replicas, of
/// all levels; `differentiated`: whether that backward is to be differentiated in turn.
[[nodiscard]] TeamOptions options_of_backward(const TeamOptions& forward,
                                              const std::vector<std::uint64_t>& map_calls,
                                              std::uint64_t run, bool differentiated);

/// ValueError for a complex result that requires a gradient.
void check_real(const TeamOptions& options, const std::vector<at::Tensor>& results);

}  // namespace lockstep
