#include "framework/training/bucket_sizes.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include <ATen/ops/zeros.h>

#include "framework/collectives/psum.h"

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

// The least time of a few calls: what delays some of them is not the link.
double seconds_of_call(collectives::AxisQueue& queue, const at::Tensor& values, int times) {
  using Clock = std::chrono::steady_clock;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    auto call = queue.pmean_(values);
    queue.wait(call);
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return least;
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

std::optional<LinkCost> measured_cost(collectives::AxisQueue& queue, const AxisNames& axis_name) {
  if (!queue.overlaps()) return {};
  constexpr std::int64_t kBytes = kMiB / 4;
  const at::Tensor one = at::zeros({1}, at::kFloat);
  const at::Tensor many = at::zeros({kBytes / std::int64_t{sizeof(float)}}, at::kFloat);
  (void)seconds_of_call(queue, many, 1);  // makes the connections
  const at::Tensor seconds = at::zeros({2}, at::kDouble);
  auto* const own = seconds.data_ptr<double>();
  own[0] = seconds_of_call(queue, one, 5);
  own[1] = seconds_of_call(queue, many, 2);
  const at::Tensor slowest = pmax(seconds, axis_name);
  const auto* const all = slowest.data_ptr<double>();
  // Not less than a tenth of the time is the bytes'.
  const double of_bytes = std::max(all[1] - all[0], all[1] / 10);
  return LinkCost{.call_s = all[0], .bytes_per_s = static_cast<double>(kBytes) / of_bytes};
}

std::int64_t total_bytes(const std::vector<at::Tensor>& parameters) {
  std::int64_t sum = 0;
  for (const at::Tensor& parameter : parameters) {
    sum += parameter.numel() * static_cast<std::int64_t>(parameter.itemsize());
  }
  return sum;
}

}  // namespace lockstep::training
