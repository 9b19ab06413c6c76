#include "framework/training/memory_prediction.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/shard.h"
#include "framework/base/text.h"
#include "framework/optim/optimizer.h"
#include "framework/training/module_parameters.h"
#include "framework/training/turn_gradients.h"

namespace lockstep {
namespace {

void check(bool holds, const std::string& message) {
  if (!holds) throw ValueError("ZeRO: " + message);
}

std::int64_t width_of(at::ScalarType type) {
  return static_cast<std::int64_t>(c10::elementSize(type));
}

// The bytes of a layout's buckets in the types that `type_of` says, over all or one shard.
std::int64_t bytes_of_buckets(const FlatLayout& layout, bool only_shard,
                              const std::function<at::ScalarType(at::ScalarType)>& type_of) {
  std::int64_t sum = 0;
  for (const FlatBucket& bucket : layout.buckets()) {
    sum += bucket.size / (only_shard ? layout.shards() : 1) * width_of(type_of(bucket.dtype));
  }
  return sum;
}

std::int64_t gathered_at_once(const FlatLayout& layout) {
  std::map<std::int64_t, std::int64_t> blocks;
  for (const FlatBucket& bucket : layout.buckets()) {
    if (bucket.group != 0) blocks[bucket.group] += bucket.size * width_of(bucket.dtype);
  }
  std::int64_t largest = 0;
  std::int64_t second = 0;
  for (const auto& [group, bytes] : blocks) {
    second = std::max(second, std::min(bytes, largest));
    largest = std::max(largest, bytes);
  }
  return largest + second;
}

// What so many replicas take that are alike.
MemoryUse times(const MemoryUse& use, std::int64_t replicas) {
  return {.parameters = replicas * (use.parameters - use.shared_parameters) + use.shared_parameters,
          .gradients = replicas * use.gradients,
          .optimizer_state = replicas * use.optimizer_state,
          .communication = replicas * use.communication,
          .shared_parameters = use.shared_parameters};
}

// The sets of gradients of replicas that take turns, which a worker's have together.
void add_sets(HostMemoryUse& use, std::int64_t bytes, std::int64_t replicas, std::int64_t workers,
              bool wait_in_backward) {
  std::int64_t largest = 0;
  for (std::int64_t worker = 0; worker < workers; ++worker) {
    const Shard here = shard(replicas, workers, worker);
    const std::int64_t sets =
        wait_in_backward ? here.size : most_sets_in_turn(here.offset, here.size);
    largest = std::max(largest, shard(sets * bytes, here.size, 0).size);
    use.host.gradients += sets * bytes;
  }
  use.largest.gradients += largest;
}

}  // namespace

void check_options(const ZeroOptions& options) {
  check(options.stage >= 0 && options.stage <= 3,
        lockstep::str("stage is ", options.stage, "; it must be 0, 1, 2 or 3"));
  check(options.bucket_mb > 0 && options.bucket_mb <= 1e6,
        lockstep::str("bucket_mb is ", options.bucket_mb,
                      "; it must be above 0 and at most 1000000"));
  check(options.accumulate >= 1,
        lockstep::str("accumulate is ", options.accumulate, "; it must be at least 1"));
  check(!options.clip_norm || *options.clip_norm > 0, "clip_norm must be above 0");
  check(!options.clip_value || *options.clip_value > 0, "clip_value must be above 0");
}

ParameterPlacement placement_of(int stage) {
  if (stage == 3) return ParameterPlacement::cut;
  return stage == 0 ? ParameterPlacement::whole : ParameterPlacement::shared;
}

FlatGradientOptions gradient_options(const ZeroOptions& options, const FlatLayout& layout,
                                     bool overlaps, bool take_turns, bool is_common) {
  const bool reduces_every = options.reduce_every_microbatch && options.accumulate > 1;
  // One after the other, so that none waits for others in the midst of its backward.
  const bool by_turns =
      take_turns && options.compression == Compression::none && (options.stage > 0 || is_common);
  const std::int64_t staged = FlatGradients::staged_at_once(layout, overlaps) *
                              FlatGradients::largest(layout, /*compressed=*/false);
  const std::int64_t whole = bytes_of_buckets(layout, false, FlatGradients::dtype_of);
  const bool frees = options.stage >= 2 && (options.accumulate == 1 || reduces_every) &&
                     staged + whole / layout.shards() < whole && !by_turns;
  return {.keeps_all = options.stage == 0 && !by_turns,
          .keeps_local = !frees,
          .reduces_early = (frees || overlaps || options.overlap == Overlap::on) && !by_turns,
          .takes_turns = by_turns,
          .reduces_every_microbatch = reduces_every,
          .compression = options.compression};
}

HostMemoryUse predicted_memory(torch::nn::Module& module, const ZeroOptions& options,
                               const ReplicaPlacement& placement) {
  check_options(options);
  const ModuleParameters parameters = module_parameters(module);
  const bool cuts = options.stage == 3 && !placement.shares_memory;
  const std::int64_t workers = placement.workers == 0 ? placement.replicas : placement.workers;
  std::vector<std::size_t> order(parameters.tensors.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  const FlatLayout layout(
      flat_items(parameters.tensors, cuts ? parameters.block_of : std::vector<std::int64_t>{}),
      order, bucket_bytes(options.bucket_mb), placement.replicas);
  const bool overlaps = placement.is_network && options.overlap != Overlap::off;
  const FlatGradientOptions gradients = gradient_options(
      options, layout, overlaps, workers < placement.replicas, placement.shares_memory);

  MemoryUse use;
  std::int64_t uncut = 0;
  for (const FlatBucket& bucket : layout.buckets()) {
    const std::int64_t bytes = bucket.size * width_of(bucket.dtype);
    uncut += cuts && bucket.group != 0 ? bytes / placement.replicas : bytes;
  }
  use.parameters = uncut;
  use.shared_parameters = placement.shares_memory ? use.parameters : 0;

  const auto summed = FlatGradients::dtype_of;
  const std::int64_t whole = bytes_of_buckets(layout, false, summed);
  const std::int64_t own = bytes_of_buckets(layout, !gradients.keeps_all, summed);
  use.gradients = gradients.keeps_local ? whole : own;
  if (gradients.takes_turns) use.gradients = own;
  if (gradients.reduces_every_microbatch) use.gradients += own;

  const bool updates_all = options.stage == 0 && !placement.shares_memory;
  const auto states = static_cast<std::int64_t>(make_optimizer(options.optimizer)->state_tensors());
  for (const FlatBucket& bucket : layout.buckets()) {
    const std::int64_t part = bucket.size / (updates_all ? 1 : placement.replicas);
    const bool has_master = summed(bucket.dtype) != bucket.dtype;
    use.optimizer_state += part * width_of(summed(bucket.dtype)) * (states + (has_master ? 1 : 0));
  }

  const std::int64_t slots = FlatGradients::staged_at_once(layout, overlaps);
  if (!gradients.keeps_local) use.communication += slots * FlatGradients::largest(layout, false);
  if (options.compression != Compression::none) {
    use.communication += slots * FlatGradients::largest(layout, true);
    for (const FlatBucket& bucket : layout.buckets()) {
      if (summed(bucket.dtype) == at::kFloat)
        use.communication += bucket.size * width_of(at::kFloat);
    }
  }
  if (cuts) use.communication += gathered_at_once(layout);
  HostMemoryUse all{use, times(use, placement.replicas)};
  if (gradients.takes_turns)
    add_sets(all, whole, placement.replicas, workers, cuts && !parameters.blocks.empty());
  return all;
}

}  // namespace lockstep
