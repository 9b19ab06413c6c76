#include "framework/training/flat_parameters.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"

namespace lockstep {
namespace {

std::int64_t bytes_in(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

// Puts `memory` (of an undefined tensor: none) under `tensor` and all its views.
void set_memory(const at::Tensor& tensor, const at::Tensor& memory) {
  c10::DataPtr data(nullptr, c10::Device(c10::kCPU));
  if (memory.defined()) {
    auto owner = std::make_unique<at::Tensor>(memory);
    void* const address = memory.data_ptr();
    data = c10::DataPtr(
        address, owner.release(), [](void* kept) { delete static_cast<at::Tensor*>(kept); },
        c10::Device(c10::kCPU));
  }
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
}

}  // namespace

FlatParameters::FlatParameters(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                               const AxisNames& axis_name, ParameterPlacement placement)
    : axis_(axis_name),
      layout_(layout),
      placement_(placement),
      buckets_(layout.buckets().size()),
      parameters_(parameters) {
  const c10::AutoGradMode no_grad(false);
  const std::int64_t replica = axis_index(axis_);
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    const FlatBucket& bucket = layout_.buckets()[index];
    Bucket& made = buckets_[index];
    CommonZeros zeros = common_zeros({bucket.size}, bucket.dtype, axis_);
    made.whole = std::move(zeros.tensor);
    is_common_ = zeros.is_common;
    fill(parameters, bucket, made);
    const Shard own = layout_.shard_of(index, replica);
    made.own = updates_all() ? made.whole : made.whole.narrow(0, own.offset, own.size);
    if (placement_ == ParameterPlacement::cut && !is_common_ && bucket.group != 0) cut(made, own);
    bytes_ += made.is_cut ? bytes_in(made.own) : bytes_in(made.whole);
  }
  if (is_common_) barrier(axis_);
}

bool FlatParameters::updates_all() const noexcept {
  return placement_ == ParameterPlacement::whole && !is_common_;
}

void FlatParameters::fill(const std::vector<at::Tensor>& parameters, const FlatBucket& bucket,
                          Bucket& into) {
  const bool writes = !is_common_ || axis_index(axis_) == 0;
  for (const std::size_t item : bucket.items) {
    const at::Tensor& parameter = parameters[item];
    const at::Tensor view = part_of(into.whole, layout_.place(item).offset, parameter.sizes());
    if (writes) view.copy_(parameter);
  }
  for (const std::size_t item : bucket.items) {
    const at::Tensor& parameter = parameters[item];
    parameter.set_data(part_of(into.whole, layout_.place(item).offset, parameter.sizes()));
  }
}

void FlatParameters::cut(Bucket& bucket, const Shard& own) {
  bucket.own = bucket.whole.narrow(0, own.offset, own.size).clone();
  bucket.is_cut = true;
  set_memory(bucket.whole, at::Tensor());
}

void FlatParameters::publish() {
  // Graphs that have saved the old values must not take the new ones for them.
  for (const at::Tensor& parameter : parameters_) parameter.unsafeGetTensorImpl()->bump_version();
  if (is_common_) return barrier(axis_);
  for (const Bucket& bucket : buckets_) {
    if (bucket.is_cut || updates_all()) continue;
    const c10::AutoGradMode no_grad(false);
    all_gather_into(bucket.whole, bucket.own, axis_);
  }
}

void FlatParameters::start_gathering(std::size_t index, AxisQueue& queue) {
  Bucket& bucket = buckets_[index];
  if (!bucket.is_cut || bucket.gathered.defined()) return;
  const c10::AutoGradMode no_grad(false);
  bucket.gathered = at::empty({layout_.buckets()[index].size}, bucket.own.options());
  gathered_ += bytes_in(bucket.gathered);
  gathered_peak_ = std::max(gathered_peak_, gathered_);
  bucket.gathering = queue.all_gather_into(bucket.gathered, bucket.own);
}

void FlatParameters::gather(std::size_t index, AxisQueue& queue) {
  start_gathering(index, queue);
  Bucket& bucket = buckets_[index];
  if (!bucket.gathering) return;
  queue.wait(*bucket.gathering);
  bucket.gathering.reset();
  set_memory(bucket.whole, bucket.gathered);
}

void FlatParameters::drop(std::size_t index, AxisQueue& queue) {
  Bucket& bucket = buckets_[index];
  if (!bucket.gathered.defined()) return;
  gather(index, queue);
  set_memory(bucket.whole, at::Tensor());
  gathered_ -= bytes_in(bucket.gathered);
  bucket.gathered.reset();
}

}  // namespace lockstep
