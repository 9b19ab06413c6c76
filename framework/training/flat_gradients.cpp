#include "framework/training/flat_gradients.h"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/base/shard.h"
#include "framework/collectives/axis_index.h"

namespace lockstep {
namespace {

constexpr std::size_t kUnderWay = 2;  // buckets at one time, where reductions overlap

std::size_t reductions_at_once(const FlatLayout& layout, bool overlaps) {
  return std::min(layout.buckets().size(), overlaps ? kUnderWay : 1);
}

at::ScalarType wire_type(const FlatBucket& bucket) {
  return gradient_dtype(bucket) == at::kFloat ? at::kBFloat16 : at::ScalarType::Undefined;
}

// The places of buckets in their order.
std::vector<std::size_t> places_in(const std::vector<std::size_t>& order) {
  std::vector<std::size_t> places(order.size());
  for (std::size_t place = 0; place < order.size(); ++place) places[order[place]] = place;
  return places;
}

// Blocks' buckets, then those of none, which are closed last.
std::vector<std::size_t> reduction_order(const FlatLayout& layout) {
  std::vector<std::size_t> order;
  for (const bool in_block : {true, false}) {
    for (std::size_t index = 0; index < layout.buckets().size(); ++index) {
      if ((layout.buckets()[index].group != 0) == in_block) order.push_back(index);
    }
  }
  return order;
}

}  // namespace

FlatGradients::FlatGradients(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                             const AxisNames& axis_name, const FlatGradientOptions& options,
                             AxisQueue& queue)
    : layout_(layout),
      options_(options),
      queue_(queue),
      replica_(axis_index(axis_name)),
      at_once_(reductions_at_once(layout, queue.overlaps())),
      order_(reduction_order(layout)),
      place_in_(places_in(order_)),
      local_(
          LocalGradients::make(options.local, parameters, layout, axis_name, place_in_, at_once_)),
      buckets_(layout.buckets().size()),
      has_(parameters.size(), false) {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    Bucket& bucket = buckets_[index];
    bucket.reduced = local_->result(index, part_of_mean(index));
    bucket.mean = bucket.reduced;
    if (options_.reduces_every_microbatch) {
      bucket.mean = at::zeros_like(bucket.reduced);
      use_.gradients += static_cast<std::int64_t>(bucket.mean.nbytes());
    }
    const FlatBucket& shape = layout_.buckets()[index];
    if (options_.compression != Compression::none && gradient_dtype(shape) == at::kFloat) {
      bucket.residual = at::zeros({shape.size}, at::kFloat);
      use_.communication += static_cast<std::int64_t>(bucket.residual.nbytes());
    }
  }
  if (options_.local == LocalGradients::Kind::staged) {
    use_.communication += StagingBuffers::bytes(layout_, at_once_, gradient_dtype);
  }
  if (options_.compression != Compression::none) {
    wire_.emplace(layout_, axis_name, at_once_, wire_type);
    use_.communication += StagingBuffers::bytes(layout_, at_once_, wire_type);
  }
}

FlatGradients::Use FlatGradients::use() const noexcept {
  Use all = use_;
  all.gradients += local_->bytes();
  return all;
}

FlatGradients::Use FlatGradients::predicted_use(const FlatLayout& layout,
                                                const FlatGradientOptions& options, bool overlaps) {
  const std::size_t at_once = reductions_at_once(layout, overlaps);
  const bool is_kept = options.local == LocalGradients::Kind::kept;
  Use use;
  for (const FlatBucket& bucket : layout.buckets()) {
    const auto width = static_cast<std::int64_t>(c10::elementSize(gradient_dtype(bucket)));
    const std::int64_t whole = bucket.size * width;
    const std::int64_t mean = options.keeps_all ? whole : whole / layout.shards();
    use.gradients += is_kept ? whole : mean;
    if (options.reduces_every_microbatch) use.gradients += mean;
    if (options.compression != Compression::none && gradient_dtype(bucket) == at::kFloat) {
      use.communication += whole;
    }
  }
  if (options.local == LocalGradients::Kind::staged) {
    use.communication += StagingBuffers::bytes(layout, at_once, gradient_dtype);
  }
  if (options.compression != Compression::none) {
    use.communication += StagingBuffers::bytes(layout, at_once, wire_type);
  }
  return use;
}

Shard FlatGradients::part_of_mean(std::size_t bucket) const {
  return options_.keeps_all ? Shard{0, layout_.buckets()[bucket].size}
                            : layout_.shard_of(bucket, replica_);
}

void FlatGradients::forget_residuals() {
  for (const Bucket& bucket : buckets_) {
    if (bucket.residual.defined()) bucket.residual.zero_();
  }
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
  local_->begin(!first && !options_.reduces_every_microbatch);
  std::fill(has_.begin(), has_.end(), false);
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index].missing = layout_.buckets()[index].items.size();
    buckets_[index].is_closed = false;
  }
}

void FlatGradients::add(std::size_t index, const at::Tensor& gradient) {
  const c10::AutoGradMode no_grad(false);
  const std::size_t bucket = layout_.place(index).bucket;
  if (place_in_[bucket] < next_) {
    throw Error(
        "a gradient came in parts or late, after others of its bucket were sent: switch "
        "overlap off");
  }
  const bool is_further_part = has_[index];  // the graph was cut in two: a part comes by itself
  local_->add(index, gradient, is_further_part);
  if (is_further_part) return;
  has_[index] = true;
  if (--buckets_[bucket].missing == 0 && options_.reduces_early) start_ready();
}

void FlatGradients::start_ready() {
  if (!reduces_now()) return;
  while (next_ < order_.size() && is_ready(buckets_[order_[next_]])) start(next_++);
}

bool FlatGradients::is_ready(const Bucket& bucket) const {
  return layout_.has_groups() ? bucket.is_closed : bucket.missing == 0;
}

void FlatGradients::close(std::size_t bucket) {
  if (!layout_.has_groups()) return;
  buckets_[bucket].is_closed = true;
  if (options_.reduces_early) start_ready();
}

std::vector<std::size_t> FlatGradients::finish() {
  const c10::AutoGradMode no_grad(false);
  std::vector<std::size_t> without;
  for (std::size_t index = 0; index < has_.size(); ++index) {
    if (has_[index]) continue;
    without.push_back(index);
    local_->add_none(index);
    --buckets_[layout_.place(index).bucket].missing;
  }
  for (Bucket& bucket : buckets_) bucket.is_closed = true;
  if (!reduces_now()) return without;
  local_->collect();
  start_ready();
  while (completed_ < next_) complete_next();
  local_->end();
  return without;
}

at::Tensor FlatGradients::compressed(std::size_t place, const at::Tensor& values) {
  const std::size_t index = order_[place];
  const at::Tensor message = wire_->of(layout_.buckets()[index], place);
  const at::Tensor& residual = buckets_[index].residual;
  residual.add_(values);
  message.copy_(residual);
  residual.sub_(message);
  return message;
}

void FlatGradients::start(std::size_t place) {
  const c10::AutoGradMode no_grad(false);
  const std::size_t index = order_[place];
  Bucket& bucket = buckets_[index];
  // Those whose staging is used again.
  while (completed_ + at_once_ <= place) complete_next();
  const at::Tensor values = local_->values(index);
  const bool is_compressed = bucket.residual.defined();
  bucket.message = is_compressed ? compressed(place, values) : values;
  if (options_.keeps_all) {
    bucket.call = queue_.pmean_(bucket.message);
  } else {
    const Shard own = part_of_mean(index);
    bucket.call = queue_.pmean_scatter_into(
        is_compressed ? bucket.message.narrow(0, own.offset, own.size) : bucket.reduced,
        bucket.message);
  }
  if (!queue_.overlaps()) complete_next();
}

void FlatGradients::complete_next() {
  const c10::AutoGradMode no_grad(false);
  const std::size_t index = order_[completed_++];
  Bucket& bucket = buckets_[index];
  queue_.wait(*bucket.call);
  bucket.call.reset();
  const Shard part = part_of_mean(index);
  const at::Tensor result = bucket.message.narrow(0, part.offset, part.size);
  const bool is_there = !bucket.residual.defined() &&
                        (!options_.keeps_all || result.data_ptr() == bucket.reduced.data_ptr());
  if (!is_there) bucket.reduced.copy_(result);
  bucket.message.reset();
  local_->release(index);
  if (!options_.reduces_every_microbatch) return;
  if (first_) {
    bucket.mean.copy_(bucket.reduced);
  } else {
    bucket.mean.add_(bucket.reduced);
  }
}

}  // namespace lockstep
