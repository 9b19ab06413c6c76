#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/non_copyable.h"
#include "framework/base/range.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/buffer_plan.h"
#include "framework/training/memory_prediction.h"
#include "framework/training/module_parameters.h"
#include "framework/training/state.h"
#include "framework/training/worker_gradient_sums.h"
#include "framework/tree/flat_layout.h"

namespace lockstep::training {

/// Gradients in flat buckets, and their means over an axis: one reduction (ReduceOp::safe_mean, so
/// finite ones have a finite mean) for each bucket. Between begin() and finish() the gradients of
/// one backward are added, each as it comes. All replicas begin, close and finish alike. They may
/// differ in which parameters have a gradient. Callers are not recorded by autograd (TrainerCall).
class FlatGradients : private NonCopyable {
 public:
  /// For parameters laid out as planned, in whose layout buckets of group 0 come last. The
  /// reductions go through `queue` until the last finish(). The queue must end before this object,
  /// whose buffers it may be using. All replicas together.
  FlatGradients(const std::vector<at::Tensor>& parameters, const BufferPlan& plan,
                AxisNames axis_name, collectives::AxisQueue& queue);

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
  [[nodiscard]] bool has_whole_means() const {
    return plan_.options.way == GradientWay::kept_whole;
  }

  /// The step has been done: what compression has left out in it replaces what it had before.
  void end_step();
  /// Forgets what compression has left out, since gradients that are not finite have spoiled it.
  void forget_residuals();
  /// What compression has left out on this replica. Restored from another number of replicas, an
  /// equal part of their sum. `module` has the layout's parameters.
  void archive_residuals(const ModuleParameters& module, const StateArchive& archive) const;

  /// The mean of a bucket, flat: the whole bucket or this replica's shard. Valid from the last
  /// finish() until the next begin().
  [[nodiscard]] const at::Tensor& mean(std::size_t bucket) const { return buckets_[bucket].mean; }
  /// A parameter's mean gradient: lent_part() of its bucket's. Needs has_whole_means().
  [[nodiscard]] at::Tensor mean_of(std::size_t index) const;

  /// Memory of this replica. If replicas take turns: its part of their common memory.
  [[nodiscard]] MemoryUse use() const;

 private:
  struct Bucket {
    at::Tensor own;       // this replica's gradients; undefined where they are staged
    at::Tensor reduced;   // what one reduction gives: may be part of the own ones
    at::Tensor mean;      // the same, or the microbatches' sum
    at::Tensor residual;  // what compression has left out so far
    at::Tensor next;      // and with this step, if the former is kept until its end
    bool has_next = false;
    std::size_t missing = 0;  // parameters whose gradient has not come in this microbatch
    bool is_closed = false;
    std::optional<collectives::AxisQueue::Call> call;
    at::Tensor message;  // under way
  };
  [[nodiscard]] bool reduces_now() const { return last_ || plan_.options.reduces_every_microbatch; }
  [[nodiscard]] bool is_staged() const { return plan_.options.way == GradientWay::staged; }
  [[nodiscard]] at::Tensor memory_of(std::size_t bucket) const;
  [[nodiscard]] at::Tensor view_of(const at::Tensor& bucket, std::size_t index) const;
  [[nodiscard]] at::Tensor mean_in(const at::Tensor& bucket, std::size_t index) const;
  // By which gradients are multiplied before partial sums of a bucket are added.
  [[nodiscard]] double scale_of(std::size_t bucket) const {
    return buckets_[bucket].residual.defined() ? 1 : scale_;
  }
  void put(std::size_t index, const at::Tensor& gradient);
  void write(std::size_t index, const at::Tensor& gradient, at::Tensor to) const;
  void complete_own(std::size_t bucket);
  void start_closed();
  void start(std::size_t index);
  void complete_next();
  [[nodiscard]] at::Tensor compressed(std::size_t index, const at::Tensor& values);

  BufferPlan plan_;
  const tree::FlatLayout& layout_ = plan_.layout;
  AxisNames axis_;
  collectives::AxisQueue& queue_;
  std::vector<std::vector<std::int64_t>> sizes_;  // by parameter
  // Memory for the few buckets that are reduced at one time: staged ones, and as they travel.
  std::vector<at::Tensor> staging_;
  std::vector<at::Tensor> wire_;
  std::shared_ptr<WorkerGradientSums> sums_;  // where replicas take turns
  std::int64_t place_here_ = 0;               // among these
  std::vector<Bucket> buckets_;
  std::vector<bool> has_;         // by parameter
  std::vector<at::Tensor> held_;  // by parameter: a gradient that waits for memory to be staged in
  double scale_ = 1;              // mean_scale() where there are partial sums
  std::size_t next_ = 0;          // the first bucket whose reduction is not started
  std::size_t completed_ = 0;     // the first whose reduction is not complete
  bool first_ = true;
  bool last_ = true;
  bool adds_ = false;  // to the gradients of earlier microbatches
};

}  // namespace lockstep::training
