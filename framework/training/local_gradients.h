#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/shard.h"
#include "framework/tree/flat_layout.h"

namespace lockstep {

/// Where a replica's own gradients are until they are reduced, and what it gets of the means.
enum class GradientWay {
  kept_whole,       ///< in memory of their own; all of the means
  kept,             ///< in memory of their own; its shard of each bucket, as with the others
  staged,           ///< each bucket's in StagingBuffers, for as long as it is reduced
  summed_in_turns,  ///< in TurnGradients, which replicas that take turns share
};

/// Memory for the few buckets that are reduced at one time, in which replicas reach each other's
/// where they share memory.
class StagingBuffers {
 public:
  /// `type_of` gives the dtype of a bucket here; buckets without one (undefined) have no room.
  using TypeOf = at::ScalarType (*)(const FlatBucket&);

  StagingBuffers(const FlatLayout& layout, const AxisNames& axis_name, std::size_t at_once,
                 TypeOf type_of);

  /// All of bucket `index`, flat. The one that comes at_once later has the same memory.
  [[nodiscard]] at::Tensor of(const FlatBucket& bucket, std::size_t index) const;

  /// What they take in bytes.
  [[nodiscard]] static std::int64_t bytes(const FlatLayout& layout, std::size_t at_once,
                                          TypeOf type_of);

 private:
  TypeOf type_of_;
  std::vector<at::Tensor> buffers_;
};

/// One replica's own gradients in flat buckets, from its backward until they are reduced. For each
/// microbatch: begin(), add() or add_none() for every parameter, collect(), then values() and
/// release() for each bucket in turn, end(). Where reductions start in the midst of the backward,
/// values() and release() come between add()s.
class LocalGradients {
 public:
  /// `at_once` reductions go on at one time.
  [[nodiscard]] static std::unique_ptr<LocalGradients> make(
      GradientWay way, const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
      const AxisNames& axis_name, std::size_t at_once);

  LocalGradients(const std::vector<at::Tensor>& parameters, const FlatLayout& layout);
  virtual ~LocalGradients() = default;
  LocalGradients(const LocalGradients&) = delete;
  LocalGradients& operator=(const LocalGradients&) = delete;

  /// A microbatch begins: its gradients are added to those that are there, or replace them.
  virtual void begin(bool adds) = 0;
  /// The gradient of parameter `index`, or a further part of it.
  virtual void add(std::size_t index, const at::Tensor& gradient, bool is_further_part) = 0;
  /// The microbatch has no gradient for parameter `index`: it counts as zeros.
  virtual void add_none(std::size_t index) = 0;

  /// All gradients are there and will be reduced. All replicas together.
  virtual void collect() {}
  /// What this replica brings to the reduction of a bucket.
  [[nodiscard]] virtual at::Tensor values(std::size_t bucket) = 0;
  /// The reduction of a bucket is over.
  virtual void release(std::size_t /*bucket*/) {}
  /// All reductions are over.
  virtual void end() {}

  /// Memory for a part of a bucket's mean: it may be that of the values.
  [[nodiscard]] virtual at::Tensor result(std::size_t bucket, const Shard& part);

  /// Bytes of all this; of replicas that take turns this one's part.
  [[nodiscard]] virtual std::int64_t bytes() const noexcept { return bytes_; }

  /// Parameter `index` in a flat tensor that is laid out as its bucket.
  [[nodiscard]] at::Tensor view_of(const at::Tensor& bucket, std::size_t index) const;

 protected:
  [[nodiscard]] const FlatLayout& layout() const noexcept { return layout_; }
  void count_bytes(const at::Tensor& tensor);

 private:
  FlatLayout layout_;
  std::vector<std::vector<std::int64_t>> sizes_;  // by parameter
  std::int64_t bytes_ = 0;
};

/// The dtype of a bucket's gradients: those of half types are summed and sent in float32.
[[nodiscard]] at::ScalarType gradient_dtype(const FlatBucket& bucket);

}  // namespace lockstep
