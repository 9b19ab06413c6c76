#include "framework/training/local_gradients.h"

#include <algorithm>
#include <source_location>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/axes/environment.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/training/turn_gradients.h"

namespace lockstep {
namespace {

std::int64_t largest_bytes(const FlatLayout& layout, StagingBuffers::TypeOf type_of) {
  std::int64_t largest = 0;
  for (const FlatBucket& bucket : layout.buckets()) {
    largest = std::max(largest, bucket.bytes(type_of(bucket)));
  }
  return largest;
}

class KeptGradients : public LocalGradients {
 public:
  KeptGradients(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                const AxisNames& axis_name)
      : LocalGradients(parameters, layout) {
    for (const FlatBucket& bucket : layout.buckets()) {
      buckets_.push_back(symmetric_zeros({bucket.size}, gradient_dtype(bucket), axis_name));
      count_bytes(buckets_.back());
    }
  }

  void begin(bool adds) override { adds_ = adds; }

  void add(std::size_t index, const at::Tensor& gradient, bool is_further_part) override {
    const at::Tensor view = view_of(buckets_[layout().place(index).bucket], index);
    if (is_further_part || adds_) {
      view.add_(gradient);
    } else if (view.data_ptr() != gradient.data_ptr()) {
      view.copy_(gradient);
    }
  }

  void add_none(std::size_t index) override {
    if (!adds_) view_of(buckets_[layout().place(index).bucket], index).zero_();
  }

  at::Tensor values(std::size_t bucket) override { return buckets_[bucket]; }

  at::Tensor result(std::size_t bucket, const Shard& part) override {
    return buckets_[bucket].narrow(0, part.offset, part.size);
  }

 protected:
  // Without buckets.
  using LocalGradients::LocalGradients;

  std::vector<at::Tensor> buckets_;

 private:
  bool adds_ = false;
};

class GradientsInTurns final : public KeptGradients {
 public:
  GradientsInTurns(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                   const AxisNames& axis_name)
      : KeptGradients(parameters, layout), axis_(axis_name) {
    const AxisCall call{"gradients", axis_, std::source_location::current()};
    ReplicaGroup& all = replicas_of(call, {}, GroupSizes::equal);
    sums_ = TurnGradients::of_worker(all, layout);
    replicas_here_ = static_cast<std::int64_t>(all.layout().own_places().size());
    place_here_ = static_cast<std::int64_t>(all.layout().index_of(all.rank()));
  }

  void begin(bool adds) override {
    if (!adds) buckets_ = sums_->take();
    KeptGradients::begin(adds);
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

  at::Tensor result(std::size_t bucket, const Shard& part) override {
    return LocalGradients::result(bucket, part);
  }

  std::int64_t bytes() const noexcept override {
    return LocalGradients::bytes() + shard(sums_->bytes(), replicas_here_, place_here_).size;
  }

 private:
  AxisNames axis_;
  std::shared_ptr<TurnGradients> sums_;
  std::int64_t replicas_here_ = 1;
  std::int64_t place_here_ = 0;
};

class StagedGradients final : public LocalGradients {
 public:
  StagedGradients(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                  const AxisNames& axis_name, std::size_t at_once)
      : LocalGradients(parameters, layout),
        staging_(layout, axis_name, at_once, gradient_dtype),
        at_once_(at_once),
        held_(parameters.size()) {}

  void begin(bool /*adds*/) override {
    released_ = 0;
    for (at::Tensor& gradient : held_) gradient.reset();  // of a backward that has thrown
  }

  void add(std::size_t index, const at::Tensor& gradient, bool is_further_part) override {
    const std::size_t bucket = layout().place(index).bucket;
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
    for (const std::size_t index : layout().buckets()[bucket].items) {
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

  void release(std::size_t /*bucket*/) override { ++released_; }

 private:
  at::Tensor staged(std::size_t bucket) const {
    return staging_.of(layout().buckets()[bucket], bucket);
  }

  StagingBuffers staging_;
  std::size_t at_once_;
  std::size_t released_ = 0;
  std::vector<at::Tensor> held_;  // by parameter: its gradient until its bucket is reduced
};

}  // namespace

at::ScalarType gradient_dtype(const FlatBucket& bucket) {
  const bool is_half = bucket.dtype == at::kBFloat16 || bucket.dtype == at::kHalf;
  return is_half ? at::kFloat : bucket.dtype;
}

StagingBuffers::StagingBuffers(const FlatLayout& layout, const AxisNames& axis_name,
                               std::size_t at_once, TypeOf type_of)
    : type_of_(type_of) {
  const std::int64_t largest = largest_bytes(layout, type_of);
  for (std::size_t slot = 0; largest > 0 && slot < at_once; ++slot) {
    buffers_.push_back(symmetric_zeros({largest}, at::kByte, axis_name));
  }
}

at::Tensor StagingBuffers::of(const FlatBucket& bucket, std::size_t index) const {
  const at::ScalarType type = type_of_(bucket);
  return buffers_[index % buffers_.size()].narrow(0, 0, bucket.bytes(type)).view(type);
}

std::int64_t StagingBuffers::bytes(const FlatLayout& layout, std::size_t at_once, TypeOf type_of) {
  return static_cast<std::int64_t>(at_once) * largest_bytes(layout, type_of);
}

std::unique_ptr<LocalGradients> LocalGradients::make(GradientWay way,
                                                     const std::vector<at::Tensor>& parameters,
                                                     const FlatLayout& layout,
                                                     const AxisNames& axis_name,
                                                     std::size_t at_once) {
  if (way == GradientWay::staged) {
    return std::make_unique<StagedGradients>(parameters, layout, axis_name, at_once);
  }
  if (way == GradientWay::summed_in_turns) {
    return std::make_unique<GradientsInTurns>(parameters, layout, axis_name);
  }
  return std::make_unique<KeptGradients>(parameters, layout, axis_name);
}

LocalGradients::LocalGradients(const std::vector<at::Tensor>& parameters, const FlatLayout& layout)
    : layout_(layout) {
  for (const at::Tensor& parameter : parameters) sizes_.push_back(parameter.sizes().vec());
}

at::Tensor LocalGradients::result(std::size_t bucket, const Shard& part) {
  const at::Tensor memory = at::zeros({part.size}, gradient_dtype(layout_.buckets()[bucket]));
  count_bytes(memory);
  return memory;
}

at::Tensor LocalGradients::view_of(const at::Tensor& bucket, std::size_t index) const {
  return part_of(bucket, layout_.place(index).offset, sizes_[index]);
}

void LocalGradients::count_bytes(const at::Tensor& tensor) {
  bytes_ += static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace lockstep
