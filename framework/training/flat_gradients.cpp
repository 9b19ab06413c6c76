#include "framework/training/flat_gradients.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/base/shard.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"

namespace lockstep {
namespace {

constexpr std::size_t kUnderWay = 2;  // staged buckets at one time
constexpr at::ScalarType kWire = at::kBFloat16;

}  // namespace

at::ScalarType FlatGradients::dtype_of(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
}

FlatGradients::FlatGradients(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                             const AxisNames& axis_name, const FlatGradientOptions& options,
                             bool overlaps)
    : layout_(layout),
      axis_(axis_name),
      options_(options),
      replica_(axis_index(axis_)),
      at_once_(static_cast<std::size_t>(staged_at_once(layout, overlaps))),
      buckets_(layout.buckets().size()),
      held_(parameters.size()),
      has_(parameters.size(), false) {
  for (const at::Tensor& parameter : parameters) sizes_.push_back(parameter.sizes().vec());
  if (options_.takes_turns) {
    turns_ = TurnGradients::of_process(axis_, layout_);
    const AxisCall call{"gradients", axis_, std::source_location::current()};
    ReplicaGroup& all = replicas_of(call, {}, GroupSizes::equal);
    replicas_here_ = static_cast<int>(all.layout().own_places().size());
    place_here_ = static_cast<int>(all.layout().index_of(all.rank()));
  }
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    const FlatBucket& shape = layout_.buckets()[index];
    const at::ScalarType dtype = dtype_of(shape.dtype);
    const Shard own = options_.keeps_all ? Shard{0, shape.size} : layout_.shard_of(index, replica_);
    Bucket& bucket = buckets_[index];
    const auto keep = [&](std::int64_t size) {
      const at::Tensor kept = at::zeros({size}, dtype);
      bytes_ += static_cast<std::int64_t>(kept.nbytes());
      return kept;
    };
    if (options_.takes_turns) {
      bucket.reduced = keep(own.size);
    } else if (options_.keeps_local) {
      bucket.local = symmetric_zeros({shape.size}, dtype, axis_);
      bytes_ += static_cast<std::int64_t>(bucket.local.nbytes());
      bucket.reduced = bucket.local.narrow(0, own.offset, own.size);
    } else {
      bucket.reduced = keep(own.size);
    }
    bucket.mean = options_.reduces_every_microbatch ? keep(own.size) : bucket.reduced;
    if (options_.compression != Compression::none && dtype == at::kFloat) {
      bucket.residual = at::zeros({shape.size}, dtype);
      communication_bytes_ += static_cast<std::int64_t>(bucket.residual.nbytes());
    }
  }
  // Blocks' buckets, then those of none, which are closed last.
  for (const bool in_block : {true, false}) {
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      if ((layout_.buckets()[index].group != 0) == in_block) order_.push_back(index);
    }
  }
  place_in_.resize(order_.size());
  for (std::size_t place = 0; place < order_.size(); ++place) place_in_[order_[place]] = place;
  allocate_staging();
}

void FlatGradients::allocate_staging() {
  const auto allocate = [&](std::vector<at::Tensor>& pool, bool compressed) {
    const std::int64_t bytes = largest(layout_, compressed);
    if (bytes == 0) return;
    for (std::size_t slot = 0; slot < at_once_; ++slot) {
      pool.push_back(symmetric_zeros({bytes}, at::kByte, axis_));
      communication_bytes_ += bytes;
    }
  };
  if (!options_.keeps_local) allocate(staged_, false);
  if (options_.compression != Compression::none) allocate(wire_, true);
}

void FlatGradients::forget_residuals() {
  for (const Bucket& bucket : buckets_) {
    if (bucket.residual.defined()) bucket.residual.zero_();
  }
}

at::Tensor FlatGradients::view_of(const at::Tensor& flat, std::size_t index) const {
  return part_of(flat, layout_.place(index).offset, sizes_[index]);
}

at::Tensor FlatGradients::own_mean(std::size_t bucket) const {
  const at::Tensor& mean = buckets_[bucket].mean;
  if (!options_.keeps_all) return mean;
  const Shard own = layout_.shard_of(bucket, replica_);
  return mean.narrow(0, own.offset, own.size);
}

void FlatGradients::begin(bool first, bool last) {
  first_ = first;
  last_ = last;
  next_ = 0;
  completed_ = 0;
  if (turns_ && (first || options_.reduces_every_microbatch)) {
    TurnGradients::Set set = turns_->take();
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      buckets_[index].local = std::move(set[index]);
    }
  }
  std::fill(has_.begin(), has_.end(), false);
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index].missing = layout_.buckets()[index].items.size();
    buckets_[index].is_closed = false;
  }
}

void FlatGradients::add(std::size_t index, const at::Tensor& gradient, AxisQueue& queue) {
  const c10::AutoGradMode no_grad(false);
  Bucket& bucket = buckets_[layout_.place(index).bucket];
  const bool is_again = has_[index];  // the graph was cut in two: a part of it comes by itself
  if (place_in_[layout_.place(index).bucket] < next_) {
    throw Error(
        "a gradient came in parts or late, after others of its bucket were sent: switch "
        "overlap off");
  }
  if (bucket.local.defined()) {
    const at::Tensor view = view_of(bucket.local, index);
    if (is_again || !(first_ || options_.reduces_every_microbatch)) {
      view.add_(gradient);
    } else if (view.data_ptr() != gradient.data_ptr()) {
      view.copy_(gradient);
    }
  } else if (is_again) {
    held_[index] = held_[index].add(gradient);
  } else if (staging_is_free(layout_.place(index).bucket)) {
    // At once, while the gradient is in the cache.
    held_[index] = view_of(staging(layout_.place(index).bucket, false), index);
    held_[index].copy_(gradient);
  } else {
    held_[index] = gradient;
  }
  if (is_again) return;
  has_[index] = true;
  if (--bucket.missing == 0 && options_.reduces_early) start_ready(queue);
}

void FlatGradients::start_ready(AxisQueue& queue) {
  if (!last_ && !options_.reduces_every_microbatch) return;
  while (next_ < order_.size() && is_ready(buckets_[order_[next_]])) start(next_++, queue);
}

bool FlatGradients::is_ready(const Bucket& bucket) const {
  return layout_.has_groups() ? bucket.is_closed : bucket.missing == 0;
}

void FlatGradients::close(std::size_t bucket, AxisQueue& queue) {
  if (!layout_.has_groups()) return;
  buckets_[bucket].is_closed = true;
  if (options_.reduces_early) start_ready(queue);
}

std::vector<std::size_t> FlatGradients::finish(AxisQueue& queue) {
  const c10::AutoGradMode no_grad(false);
  std::vector<std::size_t> without;
  for (std::size_t index = 0; index < has_.size(); ++index) {
    if (has_[index]) continue;
    without.push_back(index);
    Bucket& bucket = buckets_[layout_.place(index).bucket];
    const bool begins_sum = first_ || options_.reduces_every_microbatch;
    if (bucket.local.defined() && begins_sum) view_of(bucket.local, index).zero_();
    --bucket.missing;
  }
  for (Bucket& bucket : buckets_) bucket.is_closed = true;
  const bool reduces = last_ || options_.reduces_every_microbatch;
  if (turns_ && reduces) pass_on_sums();
  start_ready(queue);
  while (completed_ < next_) complete(completed_++, queue);
  if (turns_ && reduces) {
    for (Bucket& bucket : buckets_) bucket.local.reset();
    turns_->finish();
  }
  return without;
}

// Gives the own gradients away, for what this replica brings to the reduction.
void FlatGradients::pass_on_sums() {
  TurnGradients::Set set;
  for (Bucket& bucket : buckets_) set.push_back(std::move(bucket.local));
  turns_->give(replica_, std::move(set));
  barrier(axis_);
  set = turns_->brought_by(replica_);
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index].local = std::move(set[index]);
  }
}

std::int64_t FlatGradients::bytes() const noexcept {
  return bytes_ + (turns_ ? shard(turns_->bytes(), replicas_here_, place_here_).size : 0);
}

std::int64_t FlatGradients::staged_at_once(const FlatLayout& layout, bool overlaps) {
  const auto buckets = static_cast<std::int64_t>(layout.buckets().size());
  return std::min<std::int64_t>(buckets, overlaps ? kUnderWay : 1);
}

std::int64_t FlatGradients::largest(const FlatLayout& layout, bool compressed) {
  std::int64_t bytes = 0;
  for (const FlatBucket& bucket : layout.buckets()) {
    const at::ScalarType dtype = dtype_of(bucket.dtype);
    if (compressed && dtype != at::kFloat) continue;
    const auto width = static_cast<std::int64_t>(c10::elementSize(compressed ? kWire : dtype));
    bytes = std::max(bytes, bucket.size * width);
  }
  return bytes;
}

bool FlatGradients::staging_is_free(std::size_t bucket) const {
  return place_in_[bucket] < completed_ + at_once_;
}

at::Tensor FlatGradients::staging(std::size_t bucket, bool compressed) const {
  const at::Tensor& memory = (compressed ? wire_ : staged_)[place_in_[bucket] % at_once_];
  const FlatBucket& shape = layout_.buckets()[bucket];
  const at::ScalarType dtype = compressed ? kWire : dtype_of(shape.dtype);
  const auto width = static_cast<std::int64_t>(c10::elementSize(dtype));
  return memory.narrow(0, 0, shape.size * width).view(dtype);
}

at::Tensor FlatGradients::compressed(Bucket& bucket, const at::Tensor& values, std::size_t index) {
  const at::Tensor message = staging(index, /*compressed=*/true);
  bucket.residual.add_(values);
  message.copy_(bucket.residual);
  bucket.residual.sub_(message);
  return message;
}

void FlatGradients::start(std::size_t place, AxisQueue& queue) {
  const c10::AutoGradMode no_grad(false);
  const std::size_t index = order_[place];
  Bucket& bucket = buckets_[index];
  // Those whose staging is used again.
  while (completed_ + at_once_ <= place) complete(completed_++, queue);
  at::Tensor values = bucket.local;
  if (!values.defined()) {
    values = staging(index, /*compressed=*/false);
    for (const std::size_t item : layout_.buckets()[index].items) {
      const at::Tensor view = view_of(values, item);
      if (!has_[item]) {
        view.zero_();
      } else if (view.data_ptr() != held_[item].data_ptr()) {
        view.copy_(held_[item]);
      }
      held_[item].reset();
    }
  }
  bucket.message = bucket.residual.defined() ? compressed(bucket, values, index) : values;
  const bool in_place = options_.keeps_all || bucket.residual.defined();
  if (options_.keeps_all) {
    bucket.call = queue.pmean_(bucket.message);
  } else {
    const Shard own = layout_.shard_of(index, replica_);
    bucket.call = queue.pmean_scatter_into(
        in_place ? bucket.message.narrow(0, own.offset, own.size) : bucket.reduced, bucket.message);
  }
  if (!queue.overlaps()) complete(completed_++, queue);
}

void FlatGradients::complete(std::size_t place, AxisQueue& queue) {
  const c10::AutoGradMode no_grad(false);
  const std::size_t index = order_[place];
  Bucket& bucket = buckets_[index];
  queue.wait(*bucket.call);
  bucket.call.reset();
  const Shard own = options_.keeps_all ? Shard{0, layout_.buckets()[index].size}
                                       : layout_.shard_of(index, replica_);
  const at::Tensor result = bucket.message.narrow(0, own.offset, own.size);
  const bool is_there = !bucket.residual.defined() &&
                        (!options_.keeps_all || result.data_ptr() == bucket.reduced.data_ptr());
  if (!is_there) bucket.reduced.copy_(result);
  bucket.message.reset();
  if (!options_.reduces_every_microbatch) return;
  if (first_) {
    bucket.mean.copy_(bucket.reduced);
  } else {
    bucket.mean.add_(bucket.reduced);
  }
}

}  // namespace lockstep
