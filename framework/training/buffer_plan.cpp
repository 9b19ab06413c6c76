#include "framework/training/buffer_plan.h"

#include <algorithm>
#include <functional>

#include <ATen/ops/zeros.h>

#include "framework/optim/optimizers.h"

namespace lockstep::training {

at::Tensor PlannedTensors::zeros() const {
  return count == 0 ? at::Tensor() : at::zeros({size}, dtype);
}

BufferPlan::BufferPlan(tree::FlatLayout its_layout, const BufferOptions& its_options,
                       std::int64_t its_replica, bool overlaps)
    : layout(std::move(its_layout)), options(its_options), replica(its_replica) {
  const GradientWay way = options.way;
  const bool is_compressed = options.compression != Compression::none;
  const bool is_staged = way == GradientWay::staged;
  const bool is_kept = way == GradientWay::kept_whole || way == GradientWay::kept;
  const std::int64_t kept_residuals = options.keeps_residuals ? 2 : 1;
  std::int64_t largest = 0;
  std::int64_t largest_wire = 0;
  for (std::size_t index = 0; index < layout.buckets().size(); ++index) {
    const tree::FlatBucket& bucket = layout.buckets()[index];
    const at::ScalarType dtype = gradient_dtype(bucket);
    const bool is_cut = options.updates != ParameterUpdates::own_group && bucket.group != 0;
    const Range shard = layout.shard_of(index, replica);
    const Range mean = way == GradientWay::kept_whole ? Range{0, bucket.size} : shard;
    const bool has_residuals = is_compressed && dtype == at::kFloat;
    const std::int64_t masters = dtype != bucket.dtype ? 1 : 0;
    buckets.push_back({.is_cut = is_cut,
                       .shard = shard,
                       .mean = mean,
                       .parameters = {1, is_cut ? shard.size : bucket.size, bucket.dtype},
                       .gradients = {is_staged ? 0 : 1, bucket.size, dtype},
                       .reduced = {is_kept ? 0 : 1, mean.size, dtype},
                       .sum = {options.reduces_every_microbatch ? 1 : 0, mean.size, dtype},
                       .residuals = {has_residuals ? kept_residuals : 0, bucket.size, dtype},
                       .averages = {options.averages ? 1 : 0, shard.size, dtype},
                       .state = {options.states + masters, 1, dtype}});
    largest = std::max(largest, bucket.bytes(dtype));
    if (has_residuals) largest_wire = std::max(largest_wire, bucket.bytes(at::kBFloat16));
  }
  at_once = buckets.size();
  if (is_staged || is_compressed) at_once = std::min<std::size_t>(at_once, overlaps ? 2 : 1);
  const auto slots = static_cast<std::int64_t>(at_once);
  staging = {is_staged && largest > 0 ? slots : 0, largest, at::kByte};
  wire = {largest_wire > 0 ? slots : 0, largest_wire, at::kByte};
}

// The own shard, and an equal part, in whole blocks, of each run of shards that no holder owns. So
// the holders together update all of the bucket. Parts that touch are one.
std::vector<Range> BufferPlan::updated(std::size_t bucket,
                                       const std::vector<std::int64_t>& holders) const {
  if (options.updates != ParameterUpdates::all) return {buckets[bucket].shard};
  constexpr std::int64_t kBlock = tree::FlatLayout::kBlock;
  const auto turn = std::ranges::find(holders, replica) - holders.begin();
  std::vector<Range> parts;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    if (!parts.empty() && parts.back().end() == begin) {
      parts.back().size += end - begin;
    } else {
      parts.push_back({begin, end - begin});
    }
  };
  std::int64_t run = 0;  // where shards begin that no holder owns
  const auto end_run = [&](std::int64_t end) {
    const Range blocks = shard((end - run) / kBlock, std::ssize(holders), turn);
    add(run + blocks.offset * kBlock, run + blocks.end() * kBlock);
  };
  for (const std::int64_t holder : holders) {
    const Range its = layout.shard_of(bucket, holder);
    end_run(its.offset);
    run = its.end();
    if (holder == replica) add(its.offset, run);
  }
  end_run(layout.buckets()[bucket].size);
  return parts;
}

MemoryUse BufferPlan::use(const std::vector<std::int64_t>& holders) const {
  MemoryUse use{.communication = staging.bytes() + wire.bytes(), .holders = std::ssize(holders)};
  if (options.way != GradientWay::summed_in_turns) use.gradients = set_bytes();
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    const BucketPlan& bucket = buckets[index];
    use.parameters += bucket.parameters.bytes();
    if (!bucket.is_cut && use.holders > 1) use.shared_parameters += bucket.parameters.bytes();
    use.gradients += bucket.reduced.bytes() + bucket.sum.bytes();
    use.communication += bucket.residuals.bytes();
    use.optimizer_state += bucket.averages.bytes();
    for (const Range& part : updated(index, holders)) {
      use.optimizer_state += part.size * bucket.state.bytes();
    }
  }
  return use;
}

std::int64_t BufferPlan::gathered_bytes() const {
  std::vector<std::int64_t> blocks(2);
  for (const tree::FlatBucket& bucket : layout.buckets()) {
    if (bucket.group == 0) continue;
    const auto block = static_cast<std::size_t>(bucket.group - 1);
    blocks.resize(std::max(blocks.size(), block + 1));
    blocks[block] += bucket.bytes(bucket.dtype);
  }
  std::ranges::partial_sort(blocks, blocks.begin() + 2, std::greater());
  return blocks[0] + blocks[1];
}

std::int64_t BufferPlan::set_bytes() const {
  return sum_of(buckets, [](const BucketPlan& bucket) { return bucket.gradients.bytes(); });
}

std::int64_t BufferPlan::saved_bytes() const {
  const std::int64_t tensors = 1 + options.states + (options.averages ? 1 : 0);
  std::int64_t sum = 0;
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    const PlannedTensors element{1, 1, buckets[index].state.dtype};
    for (const tree::FlatPiece& piece : layout.pieces(index, buckets[index].shard)) {
      sum += piece.size * element.bytes() * tensors;
      const bool is_first = piece.offset == layout.place(piece.item).offset;
      if (is_first) sum += static_cast<std::int64_t>(sizeof(std::int64_t));  // its steps
    }
    // A replica saves its own residuals.
    if (buckets[index].residuals.count == 0) continue;
    for (const std::size_t item : layout.buckets()[index].items) {
      sum += layout.place(item).size * element.bytes();
    }
  }
  return sum;
}

BufferPlan plan_of_stage(const ZeroOptions& options, const tree::FlatLayout& layout,
                         const ReplicaFacts& facts) {
  const bool is_whole = options.stage == 0;
  const bool reduces_every = options.reduce_every_microbatch && options.accumulate > 1;
  BufferOptions how{
      .updates = is_whole ? ParameterUpdates::all : ParameterUpdates::own_shard,
      .overlap = options.overlap,
      .reduces_every_microbatch = reduces_every,
      .compression = options.compression,
      .keeps_residuals = options.keeps_last_step,
      .states = static_cast<std::int64_t>(make_optimizer(options.optimizer)->state_tensors()),
      .averages = options.ema_decay.has_value()};
  const auto plan = [&](GradientWay way) {
    how.way = way;
    return BufferPlan(layout, how, facts.replica, facts.overlaps);
  };
  if (facts.takes_turns && options.compression == Compression::none &&
      (!is_whole || facts.is_common)) {
    return plan(GradientWay::summed_in_turns);
  }
  const BufferPlan kept = plan(is_whole ? GradientWay::kept_whole : GradientWay::kept);
  if (options.stage < 2 || (options.accumulate > 1 && !reduces_every)) return kept;
  const BufferPlan staged = plan(GradientWay::staged);
  const std::vector<std::int64_t> alone{facts.replica};
  return staged.use(alone).total() < kept.use(alone).total() ? staged : kept;
}

}  // namespace lockstep::training
