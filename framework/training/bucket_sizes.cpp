#include "framework/training/bucket_sizes.h"

#include <algorithm>
#include <bit>

namespace lockstep::training {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
// Of a bucket where nothing overlaps, and the most in any case.
constexpr std::int64_t kLarge = 25 * kMiB;
constexpr std::int64_t kSmallest = kMiB / 16;
// How many buckets a model is to have.
constexpr std::int64_t kBuckets = 8;
// How many times a call's cost its bytes should take.
constexpr double kWorthwhile = 10;

std::int64_t least_size(std::int64_t shards, const LinkCost& link) {
  const double bytes =
      std::clamp<double>(kWorthwhile * link.call_s * link.bytes_per_s, kSmallest, kLarge);
  // The padding of each bucket is half a block a shard, as a rule.
  const std::int64_t padding =
      shards * tree::FlatLayout::kBlock * static_cast<std::int64_t>(sizeof(float)) / 2;
  const auto least =
      std::max(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(kWorthwhile) * padding);
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

}  // namespace

tree::BucketSizes bucket_sizes(std::optional<double> bucket_mb, std::int64_t bytes,
                               std::int64_t shards, const std::optional<LinkCost>& link) {
  if (bucket_mb) return std::max<std::int64_t>(1, static_cast<std::int64_t>(*bucket_mb * kMiB));
  if (!link) return kLarge;
  const std::int64_t least = least_size(shards, *link);
  const std::int64_t most = std::max(least, std::min(bytes / kBuckets, kLarge));
  return {most, std::max(least, most / 4)};
}

LinkCost link_cost(const std::function<double(std::size_t bytes)>& seconds_of) {
  constexpr std::size_t kBytes = kMiB / 4;
  const double small = seconds_of(sizeof(float));
  const double of_bytes = seconds_of(kBytes) - small;
  return {.call_s = kOfCall + small, .bytes_per_s = static_cast<double>(kBytes) / of_bytes};
}

std::optional<LinkCost> link_cost(const collectives::AxisQueue& queue) {
  if (!queue.overlaps()) return {};
  return link_cost([&](std::size_t bytes) { return queue.seconds_of(bytes); });
}

std::int64_t total_bytes(const std::vector<at::Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) sum += tensor.numel() * static_cast<std::int64_t>(tensor.itemsize());
  }
  return sum;
}

}  // namespace lockstep::training
