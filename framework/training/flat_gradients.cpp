#include "framework/training/flat_gradients.h"

#include <algorithm>
#include <source_location>
#include <utility>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/storage_memory.h"

namespace lockstep::training {

namespace {

// In which replicas reach each other's buckets where they share memory.
std::vector<at::Tensor> slots(const PlannedTensors& planned, const AxisNames& axis_name) {
  std::vector<at::Tensor> all(static_cast<std::size_t>(planned.count));
  for (at::Tensor& slot : all) slot = symmetric_zeros({planned.size}, planned.dtype, axis_name);
  return all;
}

// All of bucket `index`, flat. The one that comes as many later as there are has the same memory.
at::Tensor in_slot(const std::vector<at::Tensor>& slots, std::size_t index,
                   const tree::FlatBucket& bucket, at::ScalarType dtype) {
  return slots[index % slots.size()].narrow(0, 0, bucket.bytes(dtype)).view(dtype);
}

}  // namespace

FlatGradients::FlatGradients(const std::vector<at::Tensor>& parameters, const BufferPlan& plan,
                             AxisNames axis_name, collectives::AxisQueue& queue)
    : plan_(plan),
      axis_(std::move(axis_name)),
      queue_(queue),
      staging_(slots(plan_.staging, axis_)),
      wire_(slots(plan_.wire, axis_)),
      buckets_(layout_.buckets().size()),
      has_(parameters.size(), false),
      held_(parameters.size()) {
  for (const at::Tensor& parameter : parameters) sizes_.push_back(parameter.sizes().vec());
  const bool take_turns = plan_.options.way == GradientWay::summed_in_turns;
  const AxisCall call{"gradients", axis_, std::source_location::current()};
  groups::ReplicaGroup& all = replicas_of(call, {}, GroupSizes::equal);
  const std::size_t workers = all.layout().workers();
  if (take_turns || all.is_network() || (workers > 1 && workers < all.layout().size())) {
    scale_ = mean_scale(all.size());
  }
  if (take_turns) {
    sums_ = WorkerGradientSums::of_worker(all, layout_);
    place_here_ = static_cast<std::int64_t>(all.layout().index_of(all.rank()));
  }
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    Bucket& bucket = buckets_[index];
    const BucketPlan& planned = plan_.buckets[index];
    if (planned.gradients.count > 0 && !take_turns) {
      bucket.own = symmetric_zeros({planned.gradients.size}, planned.gradients.dtype, axis_);
    }
    bucket.reduced = planned.reduced.zeros();
    if (!bucket.reduced.defined()) bucket.reduced = mean_in(bucket.own, index);
    bucket.mean = planned.sum.zeros();
    if (!bucket.mean.defined()) bucket.mean = bucket.reduced;
    bucket.residual = planned.residuals.zeros();
    if (planned.residuals.count > 1) bucket.next = planned.residuals.zeros();
  }
}

MemoryUse FlatGradients::use() const {
  MemoryUse use{.gradients = sums_ ? sums_->bytes(place_here_) : 0};
  for (const Bucket& bucket : buckets_) {
    if (!sums_) use.gradients += total_bytes({bucket.own});
    if (!bucket.own.defined() || sums_) use.gradients += total_bytes({bucket.reduced});
    if (!bucket.mean.is_same(bucket.reduced)) use.gradients += total_bytes({bucket.mean});
    use.communication += total_bytes({bucket.residual, bucket.next});
  }
  use.communication += total_bytes(staging_) + total_bytes(wire_);
  return use;
}

at::Tensor FlatGradients::mean_of(std::size_t index) const {
  const tree::FlatPosition& place = layout_.place(index);
  return lent_part(mean(place.bucket), place.offset, sizes_[index]);
}

void FlatGradients::end_step() {
  for (Bucket& bucket : buckets_) {
    if (std::exchange(bucket.has_next, false)) std::swap(bucket.residual, bucket.next);
  }
}

void FlatGradients::forget_residuals() {
  for (Bucket& bucket : buckets_) {
    if (bucket.residual.defined()) bucket.residual.zero_();
    bucket.has_next = false;
  }
}

void FlatGradients::archive_residuals(const ModuleParameters& module,
                                      const StateArchive& archive) const {
  for (std::size_t i = 0; i < module.tensors.size(); ++i) {
    const tree::FlatPosition& place = layout_.place(i);
    const at::Tensor& of_bucket = buckets_[place.bucket].residual;
    if (!of_bucket.defined()) continue;  // nothing is compressed
    const at::Tensor residual = of_bucket.narrow(0, place.offset, place.size);
    const auto piece_of = [&](std::int64_t replica, const at::Tensor& values) {
      return StatePiece{lockstep::str(kResiduals, replica, "/", module.names[i]),
                        module.tensors[i].sizes().vec(), 0, values};
    };
    std::int64_t saved = 0;
    while (archive.restores() && archive.has(piece_of(saved, residual).name)) ++saved;
    if (saved == 0 || saved == layout_.shards()) {
      archive.part(piece_of(plan_.replica, residual));
      continue;
    }
    const at::Tensor part = at::empty_like(residual);
    residual.zero_();
    for (std::int64_t replica = 0; replica < saved; ++replica) {
      if (archive.part(piece_of(replica, part))) residual.add_(part);
    }
    residual.div_(layout_.shards());
  }
}

void FlatGradients::begin(bool first, bool last) {
  first_ = first;
  last_ = last;
  next_ = 0;
  completed_ = 0;
  adds_ = !first && !plan_.options.reduces_every_microbatch;
  std::fill(has_.begin(), has_.end(), false);
  for (at::Tensor& gradient : held_) gradient.reset();  // of a backward that has thrown
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index].missing = layout_.buckets()[index].items.size();
    buckets_[index].is_closed = false;
  }
  if (!sums_ || adds_) return;
  WorkerGradientSums::Set set = sums_->take();
  for (std::size_t index = 0; index < set.size(); ++index) buckets_[index].own = set[index];
}

// Where a bucket's own gradients lie; undefined while a staged one has to wait for memory.
at::Tensor FlatGradients::memory_of(std::size_t index) const {
  if (!is_staged()) return buckets_[index].own;
  if (index >= completed_ + plan_.at_once) return {};
  const tree::FlatBucket& bucket = layout_.buckets()[index];
  return in_slot(staging_, index, bucket, gradient_dtype(bucket));
}

// Parameter `index` in a flat tensor that is laid out as its bucket.
at::Tensor FlatGradients::view_of(const at::Tensor& bucket, std::size_t index) const {
  return collectives::part_of(bucket, layout_.place(index).offset, sizes_[index]);
}

// The part of a bucket that this replica gets the mean of.
at::Tensor FlatGradients::mean_in(const at::Tensor& bucket, std::size_t index) const {
  const Range& part = plan_.buckets[index].mean;
  return bucket.narrow(0, part.offset, part.size);
}

// Times the scale, in one pass if the gradient lies as its place does.
void FlatGradients::write(std::size_t index, const at::Tensor& gradient, at::Tensor to) const {
  const double scale = scale_of(layout_.place(index).bucket);
  const bool is_alike =
      to.scalar_type() == gradient.scalar_type() && to.strides() == gradient.strides();
  if (scale != 1 && is_alike) {
    at::mul_out(to, gradient, at::scalar_tensor(scale, to.options()));
    return;
  }
  if (to.data_ptr() != gradient.data_ptr()) to.copy_(gradient);
  if (scale != 1) to.mul_(scale);
}

// Adds a gradient to the own ones, at once if it can, while it is in the cache.
void FlatGradients::put(std::size_t index, const at::Tensor& gradient) {
  at::Tensor& held = held_[index];
  const std::size_t bucket = layout_.place(index).bucket;
  const at::Tensor memory = memory_of(bucket);
  if (held.defined()) {
    held = held.to(gradient_dtype(layout_.buckets()[bucket])).add(gradient);
  } else if (!memory.defined()) {
    held = gradient;
  } else if (const at::Tensor view = view_of(memory, index); has_[index] || adds_) {
    view.add_(gradient, scale_of(bucket));
  } else {
    write(index, gradient, view);
  }
}

// Gradients that have not come in the microbatch count as zeros.
void FlatGradients::complete_own(std::size_t bucket) {
  const at::Tensor memory = memory_of(bucket);
  for (const std::size_t index : layout_.buckets()[bucket].items) {
    if (held_[index].defined()) {
      write(index, std::exchange(held_[index], at::Tensor()), view_of(memory, index));
    } else if (!has_[index] && !adds_) {
      view_of(memory, index).zero_();
    }
  }
}

void FlatGradients::add(std::size_t index, const at::Tensor& gradient) {
  const c10::AutoGradMode no_grad(false);
  const std::size_t bucket = layout_.place(index).bucket;
  lockstep::require<Error>(
      bucket >= next_,
      "a gradient came in parts or late, after others of its bucket were sent: switch overlap "
      "off, and at ZeRO stages 2 and 3 use stage 1");
  put(index, gradient);
  if (has_[index]) return;  // the graph was cut in two: a part comes by itself
  has_[index] = true;
  if (--buckets_[bucket].missing == 0 && !layout_.has_groups()) close(bucket);
}

void FlatGradients::close(std::size_t bucket) {
  buckets_[bucket].is_closed = true;
  const bool overlaps = queue_.overlaps() || plan_.options.overlap == Overlap::on;
  if (is_staged() || (overlaps && !sums_)) start_closed();
}

void FlatGradients::start_closed() {
  if (!reduces_now()) return;
  while (next_ < buckets_.size() && buckets_[next_].is_closed) start(next_++);
}

std::vector<std::size_t> FlatGradients::finish() {
  const c10::AutoGradMode no_grad(false);
  std::vector<std::size_t> without = filtered(consecutive(std::size_t{0}, has_.size()),
                                              [&](std::size_t index) { return !has_[index]; });
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index].is_closed = true;
    if (sums_ || !reduces_now()) complete_own(index);
  }
  if (!reduces_now()) return without;
  if (sums_) {
    // The own gradients become a part of sums; one of these may be what this replica brings.
    auto own = mapped(buckets_, [](Bucket& bucket) { return std::move(bucket.own); });
    sums_->give(plan_.replica, std::move(own));
    barrier(axis_);
    own = sums_->brought_by(plan_.replica);
    for (std::size_t index = 0; index < own.size(); ++index) buckets_[index].own = own[index];
  }
  start_closed();
  while (completed_ < next_) complete_next();
  if (!sums_) return without;
  for (Bucket& bucket : buckets_) bucket.own.reset();
  sums_->finish();
  return without;
}

at::Tensor FlatGradients::compressed(std::size_t index, const at::Tensor& values) {
  const at::Tensor message = in_slot(wire_, index, layout_.buckets()[index], at::kBFloat16);
  Bucket& bucket = buckets_[index];
  at::Tensor left = bucket.residual;
  if (bucket.next.defined()) {
    left = bucket.next;
    if (!std::exchange(bucket.has_next, true)) left.copy_(bucket.residual);
  }
  left.add_(values);
  message.copy_(left);
  left.sub_(message);
  return message;
}

void FlatGradients::start(std::size_t index) {
  const c10::AutoGradMode no_grad(false);
  Bucket& bucket = buckets_[index];
  // Those whose staging is used again.
  while (completed_ + plan_.at_once <= index) complete_next();
  if (!sums_) complete_own(index);
  const at::Tensor values = memory_of(index);
  const bool is_compressed = bucket.residual.defined();
  bucket.message = is_compressed ? compressed(index, values) : values;
  const ReduceOp op = scale_of(index) == 1 ? ReduceOp::safe_mean : ReduceOp::mean_of_scaled;
  if (has_whole_means()) {
    bucket.call = queue_.pmean_(bucket.message, op);
  } else {
    bucket.call = queue_.pmean_scatter_into(
        is_compressed ? mean_in(bucket.message, index) : bucket.reduced, bucket.message, op);
  }
  if (!queue_.overlaps()) complete_next();
}

void FlatGradients::complete_next() {
  const std::size_t index = completed_++;
  Bucket& bucket = buckets_[index];
  queue_.wait(*bucket.call);
  bucket.call.reset();
  if (bucket.residual.defined()) bucket.reduced.copy_(mean_in(bucket.message, index));
  bucket.message.reset();
  if (!plan_.options.reduces_every_microbatch) return;
  first_ ? bucket.mean.copy_(bucket.reduced) : bucket.mean.add_(bucket.reduced);
}

}  // namespace lockstep::training
