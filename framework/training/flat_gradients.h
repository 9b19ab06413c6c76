#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/range.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/averaging_options.h"
#include "framework/training/memory_prediction.h"
#include "framework/training/module_parameters.h"
#include "framework/training/state.h"
#include "framework/tree/flat_layout.h"

namespace lockstep::training {

class OwnGradients;
class StagingBuffers;

/// Where a replica keeps its own gradients until they are reduced, and its part of the means.
enum class GradientWay {
  kept_whole,       ///< in memory of their own; the replica gets whole means
  kept,             ///< in memory of their own; here and below it gets its shard of each mean
  staged,           ///< each bucket's in one of a few staging buffers, while it is reduced
  summed_in_turns,  ///< in WorkerGradientSums, which replicas that take turns share
};

struct FlatGradientOptions {
  GradientWay way = GradientWay::kept_whole;
  /// Whether kept gradients are reduced in the midst of the backward. Staged ones always are, those
  /// summed in turns never.
  Overlap overlap = Overlap::automatic;
  /// Whether each microbatch's gradients are reduced, and the means summed. Otherwise each replica
  /// sums its own gradients first, which is impossible for staged ones.
  bool reduces_every_microbatch = false;
  Compression compression = Compression::none;  ///< not of what is summed in turns
  /// Whether what compression had left out stays as it was until end_step().
  bool keeps_residuals = false;
};

/// The dtype of a bucket's gradients. Half types are summed and sent in float32.
[[nodiscard]] at::ScalarType gradient_dtype(const tree::FlatBucket& bucket);
/// Bytes of the gradients of all buckets, or of one of `shards` of each.
[[nodiscard]] std::int64_t gradient_bytes(const tree::FlatLayout& layout, std::int64_t shards = 1);

/// Gradients in flat buckets, and their means over an axis: one reduction (sum, then one division)
/// for each bucket. Between begin() and finish() the gradients of one backward are added, each as
/// it comes. All replicas begin, close and finish alike. They may differ in which parameters have a
/// gradient.
class FlatGradients {
 public:
  /// For parameters laid out by `layout`, in which buckets of group 0 come last. The reductions go
  /// through `queue` until the last finish(). The queue must end before this object, whose buffers
  /// it may be using. All replicas together.
  FlatGradients(const std::vector<at::Tensor>& parameters, const tree::FlatLayout& layout,
                const AxisNames& axis_name, const FlatGradientOptions& options,
                collectives::AxisQueue& queue);
  ~FlatGradients();

  /// Begins a microbatch, which may be the first or the last of a step.
  void begin(bool first, bool last);
  /// Takes the gradient of parameter `index`.
  void add(std::size_t index, const at::Tensor& gradient);
  /// Whether the gradient of parameter `index` has come in this microbatch.
  [[nodiscard]] bool has(std::size_t index) const { return has_[index]; }
  /// For a layout with groups: no more gradients come for this bucket. It is reduced after this
  /// call or finish(), so that all replicas reduce it at the same place among their other
  /// collectives.
  void close(std::size_t bucket);
  /// Ends the microbatch. After the last one the means are complete. Parameters without a gradient
  /// count as zeros; returns their indices.
  std::vector<std::size_t> finish();

  /// Whether this replica gets the whole mean, not its shard of each bucket.
  [[nodiscard]] bool has_whole_means() const { return options_.way == GradientWay::kept_whole; }

  /// The step has been done: what compression has left out in it takes the place of what it had
  /// left out before.
  void end_step();
  /// Forgets what compression has left out, since gradients that are not finite have spoiled it.
  void forget_residuals();
  /// Bytes of what compression leaves out of the gradients of a layout, without padding.
  [[nodiscard]] static std::int64_t residual_bytes(const tree::FlatLayout& layout);
  /// What compression has left out on this replica. Restored from another number of replicas, an
  /// equal part of their sum. `module` has the layout's parameters.
  void archive_residuals(const ModuleParameters& module, const StateArchive& archive) const;

  /// The mean of a bucket, flat: the whole bucket or this replica's shard. Valid from the last
  /// finish() until the next begin().
  [[nodiscard]] const at::Tensor& mean(std::size_t bucket) const { return buckets_[bucket].mean; }
  /// A parameter's mean gradient: lent_part() of its bucket's. Needs has_whole_means().
  [[nodiscard]] at::Tensor mean_of(std::size_t index) const;

  /// Memory of this replica. If replicas take turns: its part of their common memory.
  [[nodiscard]] MemoryUse use() const noexcept;
  /// Predicts a replica's memory, without the sets of WorkerGradientSums. `overlaps` as the
  /// queue's.
  [[nodiscard]] static MemoryUse predicted_use(const tree::FlatLayout& layout,
                                               const FlatGradientOptions& options, bool overlaps);

 private:
  struct Bucket {
    at::Tensor mean;      // what the reduction gives, or their sum: may be part of the own values
    at::Tensor reduced;   // what one reduction gives
    at::Tensor residual;  // what compression has left out so far
    at::Tensor next;      // and with this step, if the former is kept until its end
    bool has_next = false;
    std::size_t missing = 0;  // parameters whose gradient has not come in this microbatch
    bool is_closed = false;
    std::optional<collectives::AxisQueue::Call> call;
    at::Tensor message;  // under way
  };
  [[nodiscard]] bool reduces_now() const { return last_ || options_.reduces_every_microbatch; }
  [[nodiscard]] Range part_of_mean(std::size_t bucket) const;
  [[nodiscard]] at::Tensor residual_of(std::size_t index) const;
  void start_closed();
  void start(std::size_t index);
  void complete_next();
  [[nodiscard]] at::Tensor compressed(std::size_t index, const at::Tensor& values);

  tree::FlatLayout layout_;
  FlatGradientOptions options_;
  collectives::AxisQueue& queue_;
  std::int64_t replica_;
  std::size_t at_once_;  // buckets that are staged or under way at one time
  std::unique_ptr<OwnGradients> own_;
  std::unique_ptr<StagingBuffers> wire_;  // buckets as they travel
  std::vector<Bucket> buckets_;
  std::vector<bool> has_;      // by parameter
  std::size_t next_ = 0;       // the first bucket whose reduction is not started
  std::size_t completed_ = 0;  // the first whose reduction is not complete
  bool first_ = true;
  bool last_ = true;
};

}  // namespace lockstep::training
