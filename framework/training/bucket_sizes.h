#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// Seconds that a call takes beside its messages, for the queue's thread and the call table: 1e-4
/// to 4e-4 on 2-core machines, by how many replicas want a core. The least counts: others work
/// then.
inline constexpr double kOfCall = 1e-4;

/// What calls cost that go on beside others' work, where the messages of an average of so many
/// bytes take `seconds_of` them.
[[nodiscard]] LinkCost link_cost(const std::function<double(std::size_t bytes)>& seconds_of);

/// What calls of this queue cost by the speed of the links, the same on all replicas. nullopt if
/// they do not overlap anything.
[[nodiscard]] std::optional<LinkCost> link_cost(const collectives::AxisQueue& queue);

/// Bytes of the values of those that are defined.
[[nodiscard]] std::int64_t total_bytes(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::training
