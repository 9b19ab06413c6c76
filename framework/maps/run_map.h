#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/maps/replica_threads.h"

namespace lockstep::maps {

/// A leaf of a map's arguments: its parts, and the part that each replica of this process gets.
struct MapInput {
  std::vector<at::Tensor> parts;
  std::vector<std::size_t> part_of;  ///< by replica
  /// The axes along which replicas have the same part: the part's gradient is the sum over them.
  std::vector<std::string> shared_over;
};

/// A map's function in one replica, from its leaves to the result's leaves.
using MapBody = std::function<std::vector<at::Tensor>(const ReplicaThread&,
                                                      const std::vector<at::Tensor>& leaves)>;

/// Runs `body` on all replicas and returns each replica's leaves. The map is one node of autograd's
/// graph: its backward runs every replica's in a thread and an environment of its own, so that the
/// collectives in it meet. Gradients of parts that replicas share, and of tensors that `body`
/// captures, are summed over these replicas in the canonical order. The backward must run where the
/// map was called; it can be differentiated in turn.
///
/// With check_vma the replicas are tracked (tree/variance.h). An input varies over the map's axes
/// that it is not shared over, and the graph inside sums its gradients. Results must be typed: see
/// ShardMapOptions. Calling another map there is a ValueError.
///
/// Throws ValueError for a complex result that requires a gradient and, from the backward of a map
/// that spans a job, for a captured tensor: members cannot match it with the others'.
[[nodiscard]] std::vector<std::vector<at::Tensor>> run_map(const MapCall& options,
                                                           const std::vector<MapInput>& inputs,
                                                           const MapBody& body);

}  // namespace lockstep::maps
