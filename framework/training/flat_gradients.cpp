#include "framework/training/flat_gradients.h"

#include <algorithm>
#include <source_location>
#include <utility>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/training/storage_memory.h"
#include "framework/training/worker_gradient_sums.h"

namespace lockstep::training {

at::ScalarType gradient_dtype(const tree::FlatBucket& bucket) {
  const bool is_half = bucket.dtype == at::kBFloat16 || bucket.dtype == at::kHalf;
  return is_half ? at::kFloat : bucket.dtype;
}

std::int64_t gradient_bytes(const tree::FlatLayout& layout, std::int64_t shards) {
  std::int64_t sum = 0;
  for (const tree::FlatBucket& bucket : layout.buckets()) {
    sum += bucket.bytes(gradient_dtype(bucket)) / shards;
  }
  return sum;
}

// Memory for the few buckets that are reduced at one time, in which replicas reach each other's
// where they share memory.
class StagingBuffers {
 public:
  // Gives the dtype of a bucket here; buckets without one (undefined) have no room.
  using TypeOf = at::ScalarType (*)(const tree::FlatBucket&);

  StagingBuffers(const tree::FlatLayout& layout, const AxisNames& axis_name, std::size_t at_once,
                 TypeOf type_of)
      : type_of_(type_of), largest_(predicted_bytes(layout, 1, type_of)) {
    for (std::size_t slot = 0; largest_ > 0 && slot < at_once; ++slot) {
      buffers_.push_back(symmetric_zeros({largest_}, at::kByte, axis_name));
    }
  }

  // All of bucket `index`, flat. The one that comes at_once later has the same memory.
  at::Tensor of(const tree::FlatBucket& bucket, std::size_t index) const {
    const at::ScalarType type = type_of_(bucket);
    return buffers_[index % buffers_.size()].narrow(0, 0, bucket.bytes(type)).view(type);
  }

  std::int64_t bytes() const noexcept { return std::ssize(buffers_) * largest_; }
  static std::int64_t predicted_bytes(const tree::FlatLayout& layout, std::size_t at_once,
                                      TypeOf type_of) {
    std::int64_t largest = 0;
    for (const tree::FlatBucket& bucket : layout.buckets()) {
      largest = std::max(largest, bucket.bytes(type_of(bucket)));
    }
    return static_cast<std::int64_t>(at_once) * largest;
  }

 private:
  TypeOf type_of_;
  std::int64_t largest_;  // bytes of a buffer: those of the largest bucket
  std::vector<at::Tensor> buffers_;
};

// One replica's own gradients in flat buckets, from its backward until they are reduced. For each
// microbatch: begin(), add() or add_none() for every parameter, collect(), then values() and
// release() for each bucket in turn, end(). Where reductions start in the midst of the backward,
// values() and release() come between add()s.
class OwnGradients {
 public:
  OwnGradients(const std::vector<at::Tensor>& parameters, const tree::FlatLayout& layout)
      : layout_(layout) {
    for (const at::Tensor& parameter : parameters) sizes_.push_back(parameter.sizes().vec());
  }
  virtual ~OwnGradients() = default;

  // A microbatch begins: its gradients are added to those that are there, or replace them.
  virtual void begin(bool adds) = 0;
  // The gradient of parameter `index`, or a further part of it.
  virtual void add(std::size_t index, const at::Tensor& gradient, bool is_further_part) = 0;
  // The microbatch has no gradient for parameter `index`: it counts as zeros.
  virtual void add_none(std::size_t index) = 0;

  // Whether a bucket is reduced as soon as it is complete. `overlaps` decides where both ways work.
  virtual bool is_early(bool overlaps) const = 0;
  // All gradients are there and will be reduced. All replicas together.
  virtual void collect() {}
  // What this replica brings to the reduction of a bucket.
  virtual at::Tensor values(std::size_t bucket) = 0;
  // The reduction of the next bucket is over.
  virtual void release() {}
  // All reductions are over.
  virtual void end() {}

  // Memory for a part of a bucket's mean: it may be that of the values.
  virtual at::Tensor result(std::size_t bucket, const Range& part) {
    return count_bytes(at::zeros({part.size}, gradient_dtype(layout_.buckets()[bucket])));
  }

  // Bytes of all this without staging; of replicas that take turns this one's part.
  virtual std::int64_t bytes() const noexcept { return bytes_; }
  virtual std::int64_t staging_bytes() const noexcept { return 0; }

  // Parameter `index` in a flat tensor that is laid out as its bucket.
  at::Tensor view_of(const at::Tensor& bucket, std::size_t index) const {
    return collectives::part_of(bucket, layout_.place(index).offset, sizes_[index]);
  }

  at::IntArrayRef sizes_of(std::size_t index) const { return sizes_[index]; }

  // Returns the tensor, whose bytes count from now on.
  at::Tensor count_bytes(at::Tensor tensor) {
    bytes_ += static_cast<std::int64_t>(tensor.nbytes());
    return tensor;
  }

 protected:
  const tree::FlatLayout& layout_;

 private:
  std::vector<std::vector<std::int64_t>> sizes_;  // by parameter
  std::int64_t bytes_ = 0;
};

namespace {

// Keeps all gradients in buckets.
class GradientsInBuckets : public OwnGradients {
 public:
  using OwnGradients::OwnGradients;

  void begin(bool adds) override { adds_ = adds; }

  void add(std::size_t index, const at::Tensor& gradient, bool is_further_part) override {
    const at::Tensor view = view_of(buckets_[layout_.place(index).bucket], index);
    if (is_further_part || adds_) {
      view.add_(gradient);
    } else if (view.data_ptr() != gradient.data_ptr()) {
      view.copy_(gradient);
    }
  }

  void add_none(std::size_t index) override {
    if (!adds_) view_of(buckets_[layout_.place(index).bucket], index).zero_();
  }

  at::Tensor values(std::size_t bucket) override { return buckets_[bucket]; }

 protected:
  std::vector<at::Tensor> buckets_;

 private:
  bool adds_ = false;
};

class KeptGradients final : public GradientsInBuckets {
 public:
  KeptGradients(const std::vector<at::Tensor>& parameters, const tree::FlatLayout& layout,
                const AxisNames& axis_name)
      : GradientsInBuckets(parameters, layout) {
    for (const tree::FlatBucket& bucket : layout.buckets()) {
      buckets_.push_back(
          count_bytes(symmetric_zeros({bucket.size}, gradient_dtype(bucket), axis_name)));
    }
  }

  bool is_early(bool overlaps) const override { return overlaps; }
  at::Tensor result(std::size_t bucket, const Range& part) override {
    return buckets_[bucket].narrow(0, part.offset, part.size);
  }
};

class SummedInTurns final : public GradientsInBuckets {
 public:
  SummedInTurns(const std::vector<at::Tensor>& parameters, const tree::FlatLayout& layout,
                const AxisNames& axis_name)
      : GradientsInBuckets(parameters, layout), axis_(axis_name) {
    const AxisCall call{"gradients", axis_, std::source_location::current()};
    groups::ReplicaGroup& all = replicas_of(call, {}, GroupSizes::equal);
    sums_ = WorkerGradientSums::of_worker(all, layout);
    place_here_ = static_cast<std::int64_t>(all.layout().index_of(all.rank()));
  }

  bool is_early(bool /*overlaps*/) const override { return false; }
  void begin(bool adds) override {
    if (!adds) buckets_ = sums_->take();
    GradientsInBuckets::begin(adds);
  }

  // The own gradients become a part of sums; one of these may be what this replica brings.
  void collect() override {
    sums_->give(axis_index(axis_), std::move(buckets_));
    barrier(axis_);
    buckets_ = sums_->brought_by(axis_index(axis_));
  }

  void end() override {
    buckets_.clear();
    sums_->finish();
  }

  std::int64_t bytes() const noexcept override {
    return OwnGradients::bytes() + sums_->bytes(place_here_);
  }

 private:
  AxisNames axis_;
  std::shared_ptr<WorkerGradientSums> sums_;
  std::int64_t place_here_ = 0;
};

class StagedGradients final : public OwnGradients {
 public:
  StagedGradients(const std::vector<at::Tensor>& parameters, const tree::FlatLayout& layout,
                  const AxisNames& axis_name, std::size_t at_once)
      : OwnGradients(parameters, layout),
        staging_(layout, axis_name, at_once, gradient_dtype),
        at_once_(at_once),
        held_(parameters.size()) {}

  bool is_early(bool /*overlaps*/) const override { return true; }
  void begin(bool /*adds*/) override {
    released_ = 0;
    for (at::Tensor& gradient : held_) gradient.reset();  // of a backward that has thrown
  }

  void add(std::size_t index, const at::Tensor& gradient, bool is_further_part) override {
    const std::size_t bucket = layout_.place(index).bucket;
    if (is_further_part) {
      held_[index] = held_[index].add(gradient);
    } else if (bucket < released_ + at_once_) {
      // At once, while the gradient is in the cache.
      held_[index] = view_of(staged(bucket), index);
      held_[index].copy_(gradient);
    } else {
      held_[index] = gradient;
    }
  }

  void add_none(std::size_t /*index*/) override {}

  at::Tensor values(std::size_t bucket) override {
    const at::Tensor all = staged(bucket);
    for (const std::size_t index : layout_.buckets()[bucket].items) {
      const at::Tensor view = view_of(all, index);
      if (!held_[index].defined()) {
        view.zero_();
      } else if (view.data_ptr() != held_[index].data_ptr()) {
        view.copy_(held_[index]);
      }
      held_[index].reset();
    }
    return all;
  }

  void release() override { ++released_; }
  std::int64_t staging_bytes() const noexcept override { return staging_.bytes(); }

 private:
  at::Tensor staged(std::size_t bucket) const {
    return staging_.of(layout_.buckets()[bucket], bucket);
  }

  StagingBuffers staging_;
  std::size_t at_once_;
  std::size_t released_ = 0;
  std::vector<at::Tensor> held_;  // by parameter: its gradient until its bucket is reduced
};

std::unique_ptr<OwnGradients> make_own(GradientWay way, const std::vector<at::Tensor>& parameters,
                                       const tree::FlatLayout& layout, const AxisNames& axis_name,
                                       std::size_t at_once) {
  if (way == GradientWay::staged) {
    return std::make_unique<StagedGradients>(parameters, layout, axis_name, at_once);
  }
  if (way == GradientWay::summed_in_turns) {
    return std::make_unique<SummedInTurns>(parameters, layout, axis_name);
  }
  return std::make_unique<KeptGradients>(parameters, layout, axis_name);
}

// How many buckets are reduced at one time. Where each has memory of its own, the backward never
// waits for the network.
std::size_t reductions_at_once(const tree::FlatLayout& layout, const FlatGradientOptions& options,
                               bool overlaps) {
  const std::size_t all = layout.buckets().size();
  const bool is_staged =
      options.way == GradientWay::staged || options.compression != Compression::none;
  return is_staged ? std::min<std::size_t>(all, overlaps ? 2 : 1) : all;
}

at::ScalarType wire_type(const tree::FlatBucket& bucket) {
  return gradient_dtype(bucket) == at::kFloat ? at::kBFloat16 : at::ScalarType::Undefined;
}

}  // namespace

FlatGradients::FlatGradients(const std::vector<at::Tensor>& parameters,
                             const tree::FlatLayout& layout, const AxisNames& axis_name,
                             const FlatGradientOptions& options, collectives::AxisQueue& queue)
    : layout_(layout),
      options_(options),
      queue_(queue),
      replica_(axis_index(axis_name)),
      at_once_(reductions_at_once(layout, options, queue.overlaps())),
      own_(make_own(options.way, parameters, layout_, axis_name, at_once_)),
      buckets_(layout.buckets().size()),
      has_(parameters.size(), false) {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    Bucket& bucket = buckets_[index];
    bucket.reduced = own_->result(index, part_of_mean(index));
    bucket.mean = options_.reduces_every_microbatch
                      ? own_->count_bytes(at::zeros_like(bucket.reduced))
                      : bucket.reduced;
    const tree::FlatBucket& shape = layout_.buckets()[index];
    if (options_.compression != Compression::none && gradient_dtype(shape) == at::kFloat) {
      bucket.residual = at::zeros({shape.size}, at::kFloat);
      if (options_.keeps_residuals) bucket.next = at::zeros({shape.size}, at::kFloat);
    }
  }
  if (options_.compression != Compression::none) {
    wire_ = std::make_unique<StagingBuffers>(layout_, axis_name, at_once_, wire_type);
  }
}

FlatGradients::~FlatGradients() = default;

MemoryUse FlatGradients::use() const noexcept {
  MemoryUse use{.gradients = own_->bytes(), .communication = own_->staging_bytes()};
  if (wire_) use.communication += wire_->bytes();
  for (const Bucket& bucket : buckets_) {
    if (bucket.residual.defined()) use.communication += bucket.residual.nbytes();
    if (bucket.next.defined()) use.communication += bucket.next.nbytes();
  }
  return use;
}

MemoryUse FlatGradients::predicted_use(const tree::FlatLayout& layout,
                                       const FlatGradientOptions& options, bool overlaps) {
  const std::size_t at_once = reductions_at_once(layout, options, overlaps);
  const std::int64_t means =
      gradient_bytes(layout, options.way == GradientWay::kept_whole ? 1 : layout.shards());
  MemoryUse use{.gradients = options.way == GradientWay::kept ? gradient_bytes(layout) : means};
  if (options.reduces_every_microbatch) use.gradients += means;
  if (options.way == GradientWay::staged) {
    use.communication = StagingBuffers::predicted_bytes(layout, at_once, gradient_dtype);
  }
  if (options.compression == Compression::none) return use;
  for (const tree::FlatBucket& bucket : layout.buckets()) {
    if (gradient_dtype(bucket) != at::kFloat) continue;
    use.communication += (options.keeps_residuals ? 2 : 1) * bucket.bytes(at::kFloat);
  }
  use.communication += StagingBuffers::predicted_bytes(layout, at_once, wire_type);
  return use;
}

at::Tensor FlatGradients::mean_of(std::size_t index) const {
  const tree::FlatPosition& place = layout_.place(index);
  return lent_part(mean(place.bucket), place.offset, own_->sizes_of(index));
}

Range FlatGradients::part_of_mean(std::size_t bucket) const {
  return has_whole_means() ? Range{0, layout_.buckets()[bucket].size}
                           : layout_.shard_of(bucket, replica_);
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

// What compression has left out of a parameter; undefined where nothing is compressed.
at::Tensor FlatGradients::residual_of(std::size_t index) const {
  const tree::FlatPosition& place = layout_.place(index);
  const at::Tensor& residual = buckets_[place.bucket].residual;
  return residual.defined() ? residual.narrow(0, place.offset, place.size) : at::Tensor();
}

std::int64_t FlatGradients::residual_bytes(const tree::FlatLayout& layout) {
  std::int64_t sum = 0;
  for (const tree::FlatBucket& bucket : layout.buckets()) {
    if (gradient_dtype(bucket) != at::kFloat) continue;
    for (const std::size_t item : bucket.items) {
      sum += layout.place(item).size * static_cast<std::int64_t>(c10::elementSize(at::kFloat));
    }
  }
  return sum;
}

void FlatGradients::archive_residuals(const ModuleParameters& module,
                                      const StateArchive& archive) const {
  const c10::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < module.tensors.size(); ++i) {
    const at::Tensor residual = residual_of(i);
    if (!residual.defined()) continue;
    const auto piece_of = [&](std::int64_t replica, const at::Tensor& values) {
      return StatePiece{lockstep::str(kResiduals, replica, "/", module.names[i]),
                        module.tensors[i].sizes().vec(), 0, values};
    };
    std::int64_t saved = 0;
    while (archive.restores() && archive.has(piece_of(saved, residual).name)) ++saved;
    if (saved == 0 || saved == layout_.shards()) {
      archive.part(piece_of(replica_, residual));
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
  own_->begin(!first && !options_.reduces_every_microbatch);
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
        "a gradient came in parts or late, after others of its bucket were sent: switch overlap "
        "off, and at ZeRO stages 2 and 3 use stage 1");
  }
  const bool is_further_part = has_[index];  // the graph was cut in two: a part comes by itself
  own_->add(index, gradient, is_further_part);
  if (is_further_part) return;
  has_[index] = true;
  if (--buckets_[bucket].missing == 0 && !layout_.has_groups()) close(bucket);
}

void FlatGradients::close(std::size_t bucket) {
  buckets_[bucket].is_closed = true;
  if (own_->is_early(queue_.overlaps() || options_.overlap == Overlap::on)) start_closed();
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
    own_->add_none(index);
  }
  for (Bucket& bucket : buckets_) bucket.is_closed = true;
  if (!reduces_now()) return without;
  own_->collect();
  start_closed();
  while (completed_ < next_) complete_next();
  own_->end();
  return without;
}

at::Tensor FlatGradients::compressed(std::size_t index, const at::Tensor& values) {
  const at::Tensor message = wire_->of(layout_.buckets()[index], index);
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
  while (completed_ + at_once_ <= index) complete_next();
  const at::Tensor values = own_->values(index);
  const bool is_compressed = bucket.residual.defined();
  bucket.message = is_compressed ? compressed(index, values) : values;
  if (has_whole_means()) {
    bucket.call = queue_.pmean_(bucket.message);
  } else {
    const Range own = part_of_mean(index);
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
    const Range part = part_of_mean(index);
    bucket.reduced.copy_(bucket.message.narrow(0, part.offset, part.size));
  }
  bucket.message.reset();
  own_->release();
  if (!options_.reduces_every_microbatch) return;
  first_ ? bucket.mean.copy_(bucket.reduced) : bucket.mean.add_(bucket.reduced);
}

}  // namespace lockstep::training
