#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/collectives/axis_queue.h"
#include "framework/training/averaging_options.h"
#include "framework/tree/flat_layout.h"

namespace lockstep::training {

/// How many bytes of gradients travel together: option `bucket_mb`, if it has a value. Otherwise 25
/// MB if reductions do not overlap the backward (`link` is nullopt): fewer calls cost less. If they
/// do, many buckets are good, since the link then has work as soon as the first gradients are there
/// and little to do after the last: an eighth of the `bytes` of all gradients, and less for the
/// first and the last bucket. But a call should cost little beside its bytes' time, at most a
/// tenth, and padding for so many `shards` little beside the bytes: so there is a least size, a
/// power of two, for links whose speed differs a little to give one layout.
[[nodiscard]] tree::BucketSizes bucket_sizes(std::optional<double> bucket_mb, std::int64_t bytes,
                                             std::int64_t shards,
                                             const std::optional<LinkCost>& link);

/// What calls of this queue cost by the speed of the links, the same on all replicas. nullopt if
/// they do not overlap anything.
[[nodiscard]] std::optional<LinkCost> link_cost(const collectives::AxisQueue& queue);

/// Bytes of the values of those that are defined.
[[nodiscard]] std::int64_t total_bytes(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::training
