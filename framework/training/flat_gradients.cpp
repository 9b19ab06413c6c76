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

}  // namespace

FlatGradients::FlatGradients(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                             const AxisNames& axis_name, const FlatGradientOptions& options,
                             AxisQueue& queue)
    : layout_(layout),
      options_(options),
      queue_(queue),
      replica_(axis_index(axis_name)),
      at_once_(reductions_at_once(layout, queue.overlaps())),
      local_(LocalGradients::make(options.way, parameters, layout, axis_name, at_once_)),
      buckets_(layout.buckets().size()),
      has_(parameters.size(), false) {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    Bucket& bucket = buckets_[index];
    bucket.reduced = local_->result(index, part_of_mean(index));
    bucket.mean = bucket.reduced;
    if (options_.reduces_every_microbatch) {
      bucket.mean = at::zeros_like(bucket.reduced);
      summed_means_ += static_cast<std::int64_t>(bucket.mean.nbytes());
    }
    const FlatBucket& shape = layout_.buckets()[index];
    if (options_.compression != Compression::none && gradient_dtype(shape) == at::kFloat) {
      bucket.residual = at::zeros({shape.size}, at::kFloat);
    }
  }
  if (options_.compression != Compression::none) {
    wire_.emplace(layout_, axis_name, at_once_, wire_type);
  }
}

FlatGradients::Use FlatGradients::use() const noexcept {
  return {.gradients = local_->bytes() + summed_means_,
          .communication = predicted_use(layout_, options_, queue_.overlaps()).communication};
}

FlatGradients::Use FlatGradients::predicted_use(const FlatLayout& layout,
                                                const FlatGradientOptions& options, bool overlaps) {
  const std::size_t at_once = reductions_at_once(layout, overlaps);
  const bool is_whole = options.way == GradientWay::kept_whole;
  Use use;
  for (const FlatBucket& bucket : layout.buckets()) {
    const std::int64_t whole = bucket.bytes(gradient_dtype(bucket));
    const std::int64_t mean = is_whole ? whole : whole / layout.shards();
    use.gradients += options.way == GradientWay::kept ? whole : mean;
    if (options.reduces_every_microbatch) use.gradients += mean;
    if (options.compression != Compression::none && gradient_dtype(bucket) == at::kFloat) {
      use.communication += whole;
    }
  }
  if (options.way == GradientWay::staged) {
    use.communication += StagingBuffers::bytes(layout, at_once, gradient_dtype);
  }
  if (options.compression != Compression::none) {
    use.communication += StagingBuffers::bytes(layout, at_once, wire_type);
  }
  return use;
}

Shard FlatGradients::part_of_mean(std::size_t bucket) const {
  return has_whole_means() ? Shard{0, layout_.buckets()[bucket].size}
                           : layout_.shard_of(bucket, replica_);
}

void FlatGradients::forget_residuals() {
  for (const Bucket& bucket : buckets_) {
    if (bucket.residual.defined()) bucket.residual.zero_();
  }
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
  if (bucket < next_) {
    throw Error(
        "a gradient came in parts or late, after others of its bucket were sent: switch "
        "overlap off");
  }
  const bool is_further_part = has_[index];  // the graph was cut in two: a part comes by itself
  local_->add(index, gradient, is_further_part);
  if (is_further_part) return;
  has_[index] = true;
  if (--buckets_[bucket].missing == 0 && !layout_.has_groups()) close(bucket);
}

void FlatGradients::close(std::size_t bucket) {
  buckets_[bucket].is_closed = true;
  const bool is_early =
      options_.way == GradientWay::staged || queue_.overlaps() || options_.overlap == Overlap::on;
  if (is_early && options_.way != GradientWay::summed_in_turns) start_closed();
}

void FlatGradients::start_closed() {
  if (!reduces_now()) return;
  while (next_ < buckets_.size() && buckets_[next_].is_closed) start(next_++);
}

std::vector<std::size_t> FlatGradients::finish() {
  const c10::AutoGradMode no_grad(false);
  std::vector<std::size_t> without;
  for (std::size_t index = 0; index < has_.size(); ++index) {
    if (has_[index]) continue;
    without.push_back(index);
    local_->add_none(index);
  }
  for (Bucket& bucket : buckets_) bucket.is_closed = true;
  if (!reduces_now()) return without;
  local_->collect();
  start_closed();
  while (completed_ < next_) complete_next();
  local_->end();
  return without;
}

at::Tensor FlatGradients::compressed(std::size_t index, const at::Tensor& values) {
  const at::Tensor message = wire_->of(layout_.buckets()[index], index);
  const at::Tensor& residual = buckets_[index].residual;
  residual.add_(values);
  message.copy_(residual);
  residual.sub_(message);
  return message;
}

void FlatGradients::start(std::size_t index) {
  const c10::AutoGradMode no_grad(false);
  Bucket& bucket = buckets_[index];
  // Those whose staging is used again.
  while (completed_ + at_once_ <= index) complete_next();
  const at::Tensor values = local_->values(index);
  const bool is_compressed = bucket.residual.defined();
  bucket.message = is_compressed ? compressed(index, values) : values;
  if (has_whole_means()) {
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
  const std::size_t index = completed_++;
  Bucket& bucket = buckets_[index];
  queue_.wait(*bucket.call);
  bucket.call.reset();
  if (bucket.residual.defined()) {
    const Shard part = part_of_mean(index);
    bucket.reduced.copy_(bucket.message.narrow(0, part.offset, part.size));
  }
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
