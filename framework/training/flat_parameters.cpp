#include "framework/training/flat_parameters.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"

namespace lockstep {
namespace {

std::int64_t bytes_in_own_type(const FlatBucket& bucket) {
  return bucket.size * static_cast<std::int64_t>(c10::elementSize(bucket.dtype));
}

}  // namespace

FlatParameters::FlatParameters(const std::vector<std::string>& names,
                               const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                               const AxisNames& axis_name, ParameterUpdates updates)
    : axis_(axis_name),
      updates_(updates),
      placed_(names, parameters, layout, axis_name),
      buckets_(layout.buckets().size()) {
  const c10::AutoGradMode no_grad(false);
  const std::int64_t replica = axis_index(axis_);
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    Bucket& made = buckets_[index];
    const at::Tensor& whole = placed_.bucket(index);
    const Shard own = layout.shard_of(index, replica);
    made.own = updates_all() ? whole : whole.narrow(0, own.offset, own.size);
    bytes_ += static_cast<std::int64_t>((is_cut(index) ? made.own : whole).nbytes());
    if (!is_cut(index)) continue;
    made.own = made.own.clone();
    placed_.set_memory(index, at::Tensor());
  }
}

std::int64_t FlatParameters::predicted_bytes(const FlatLayout& layout) {
  std::int64_t sum = 0;
  for (const FlatBucket& bucket : layout.buckets()) {
    sum += bytes_in_own_type(bucket) / (bucket.group != 0 ? layout.shards() : 1);
  }
  return sum;
}

// Two blocks, the largest there are.
std::int64_t FlatParameters::predicted_gathered(const FlatLayout& layout) {
  std::map<std::int64_t, std::int64_t> blocks;
  for (const FlatBucket& bucket : layout.buckets()) {
    if (bucket.group != 0) blocks[bucket.group] += bytes_in_own_type(bucket);
  }
  std::int64_t largest = 0;
  std::int64_t second = 0;
  for (const auto& [group, bytes] : blocks) {
    second = std::max(second, std::min(bytes, largest));
    largest = std::max(largest, bytes);
  }
  return largest + second;
}

bool FlatParameters::updates_all() const noexcept {
  return updates_ == ParameterUpdates::all && !is_common();
}

void FlatParameters::publish() {
  if (is_common()) {
    barrier(axis_);
  } else if (!updates_all()) {
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      if (is_cut(index)) continue;
      const c10::AutoGradMode no_grad(false);
      all_gather_into(placed_.bucket(index), buckets_[index].own, axis_);
    }
  }
  placed_.note_update();
}

std::vector<std::size_t> FlatParameters::edit(const std::function<void()>& write,
                                              const AxisCall& call) {
  auto changed = placed_.edit(write, call);
  const c10::AutoGradMode no_grad(false);
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    if (!is_cut(index)) continue;
    const Bucket& bucket = buckets_[index];
    const Shard own = placed_.layout().shard_of(index, axis_index(axis_));
    bucket.own.copy_(bucket.gathered.narrow(0, own.offset, own.size));
  }
  return changed;
}

void FlatParameters::start_gathering(std::size_t index, AxisQueue& queue) {
  Bucket& bucket = buckets_[index];
  if (!is_cut(index) || bucket.gathered.defined()) return;
  const c10::AutoGradMode no_grad(false);
  bucket.gathered = at::empty({placed_.layout().buckets()[index].size}, bucket.own.options());
  gathered_ += static_cast<std::int64_t>(bucket.gathered.nbytes());
  gathered_peak_ = std::max(gathered_peak_, gathered_);
  bucket.gathering = queue.all_gather_into(bucket.gathered, bucket.own);
}

void FlatParameters::gather(std::size_t index, AxisQueue& queue) {
  start_gathering(index, queue);
  Bucket& bucket = buckets_[index];
  if (!bucket.gathering) return;
  queue.wait(*bucket.gathering);
  bucket.gathering.reset();
  placed_.set_memory(index, bucket.gathered);
}

void FlatParameters::drop(std::size_t index, AxisQueue& queue) {
  Bucket& bucket = buckets_[index];
  if (!bucket.gathered.defined()) return;
  gather(index, queue);
  placed_.set_memory(index, at::Tensor());
  gathered_ -= static_cast<std::int64_t>(bucket.gathered.nbytes());
  bucket.gathered.reset();
}

}  // namespace lockstep
