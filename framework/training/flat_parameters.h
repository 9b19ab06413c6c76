#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/collectives/axis_queue.h"
#include "framework/tree/flat_layout.h"

namespace lockstep {

/// Who has which part of the parameters.
enum class ParameterPlacement {
  whole,   ///< every replica has and updates all of them, where they do not share memory
  shared,  ///< every replica has all, and updates its shard of each bucket
  cut,     ///< every replica has its shard; buckets of groups other than 0 are whole while gathered
};

/// Parameters as views of flat buckets. Where all replicas of the axis can share memory they hold
/// one copy together, which is never cut: then the owner of a shard writes it, and a barrier stands
/// for every exchange.
class FlatParameters {
 public:
  /// Makes the `parameters`, which keep their values, views of buckets that `layout` describes. All
  /// replicas together, with equal values. CommError if the host has not enough memory.
  FlatParameters(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                 const AxisNames& axis_name, ParameterPlacement placement);
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  /// Whether the replicas hold one copy.
  [[nodiscard]] bool is_common() const noexcept { return is_common_; }
  /// Whether each replica updates everything itself.
  [[nodiscard]] bool updates_all() const noexcept;

  /// What this replica updates of a bucket, flat.
  [[nodiscard]] const at::Tensor& own(std::size_t bucket) const { return buckets_[bucket].own; }
  /// After all replicas have updated what is theirs: makes it everybody's.
  void publish();

  /// Begins to gather a cut bucket, unless that has begun.
  void start_gathering(std::size_t bucket, AxisQueue& queue);
  /// Returns when it is gathered: its parameters have their values.
  void gather(std::size_t bucket, AxisQueue& queue);
  /// Gives the memory of a gathered bucket back. Tensors that autograd has saved find their values
  /// again when it is gathered the next time. Waits first, if that is under way.
  void drop(std::size_t bucket, AxisQueue& queue);
  [[nodiscard]] bool is_gathered(std::size_t bucket) const {
    return buckets_[bucket].gathered.defined();
  }

  /// Bytes of this replica's own parameters; where they are common, of all replicas together.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// The most bytes that were gathered at one time.
  [[nodiscard]] std::int64_t gathered_peak() const noexcept { return gathered_peak_; }

 private:
  struct Bucket {
    at::Tensor whole;  // of a cut bucket: without memory while it is dropped
    at::Tensor own;
    bool is_cut = false;
    at::Tensor gathered;  // the memory of a cut bucket that is whole
    std::optional<AxisQueue::Call> gathering;
  };
  void fill(const std::vector<at::Tensor>& parameters, const FlatBucket& bucket, Bucket& into);
  void cut(Bucket& bucket, const Shard& own);

  AxisNames axis_;
  FlatLayout layout_;
  ParameterPlacement placement_;
  bool is_common_ = false;
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> parameters_;
  std::int64_t bytes_ = 0;
  std::int64_t gathered_ = 0;
  std::int64_t gathered_peak_ = 0;
};

}  // namespace lockstep
