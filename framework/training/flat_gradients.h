#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/averaging_options.h"
#include "framework/training/turn_gradients.h"
#include "framework/tree/flat_layout.h"

namespace lockstep {

struct FlatGradientOptions {
  /// Whether each replica gets the whole mean, or its shard of each bucket.
  bool keeps_all = true;
  /// Whether each replica keeps all of its local gradients in memory (needed where it sums
  /// microbatches before the reduction). Otherwise a bucket's gradients are freed once that bucket
  /// is reduced.
  bool keeps_local = true;
  /// Reductions are started as soon as a bucket's gradients are there, or it is closed (close()),
  /// in the midst of the backward; otherwise after it.
  bool reduces_early = false;
  /// Replicas that share a process take turns, and sum their gradients as they come
  /// (TurnGradients). With keeps_local, without keeps_all, reduces_early and compression.
  bool takes_turns = false;
  /// Each microbatch's gradients are reduced, and the means are summed; otherwise each replica sums
  /// its own first.
  bool reduces_every_microbatch = false;
  Compression compression = Compression::none;
};

/// Gradients in flat buckets, and their means over an axis: a reduction (sum, then one division) a
/// bucket. Between begin() and finish() the gradients of one backward are added, each as it comes.
/// All replicas begin, close and finish alike; which parameters have a gradient may differ.
class FlatGradients {
 public:
  /// For parameters laid out by `layout`. Half types are summed and sent in float32. `overlaps` as
  /// the queue does that add() and finish() get. All replicas together.
  FlatGradients(const std::vector<at::Tensor>& parameters, const FlatLayout& layout,
                const AxisNames& axis_name, const FlatGradientOptions& options, bool overlaps);

  /// The dtype of gradients of parameters of dtype `type`.
  [[nodiscard]] static at::ScalarType dtype_of(at::ScalarType type);

  /// How many staging buffers there are, where calls overlap with others or not.
  [[nodiscard]] static std::int64_t staged_at_once(const FlatLayout& layout, bool overlaps);
  /// Bytes of one: of the largest bucket, as it is summed, or compressed.
  [[nodiscard]] static std::int64_t largest(const FlatLayout& layout, bool compressed);

  /// Begins a microbatch: the first of a step or not, the last or not.
  void begin(bool first, bool last);
  /// The gradient of parameter `index` is there.
  void add(std::size_t index, const at::Tensor& gradient, AxisQueue& queue);
  /// Whether it has come in this microbatch.
  [[nodiscard]] bool has(std::size_t index) const { return has_[index]; }
  /// No more gradients come for a bucket. Those of a group other than 0 are reduced after this at
  /// the earliest, and those of group 0 after finish(): so that all replicas reduce at the same
  /// places among their other collectives. In a layout without groups it does nothing.
  void close(std::size_t bucket, AxisQueue& queue);
  /// Ends the microbatch; after the last the means are there. Parameters without a gradient count
  /// as zeros; returns them.
  std::vector<std::size_t> finish(AxisQueue& queue);

  /// Whether this replica gets the whole mean.
  [[nodiscard]] bool keeps_all() const noexcept { return options_.keeps_all; }

  /// Forgets what compression has left out: gradients that are not finite have spoiled it.
  void forget_residuals();

  /// The mean of a bucket, flat: of all of it or of this replica's shard. After the last finish()
  /// and until the next begin().
  [[nodiscard]] const at::Tensor& mean(std::size_t bucket) const { return buckets_[bucket].mean; }
  /// This replica's shard of the mean.
  [[nodiscard]] at::Tensor own_mean(std::size_t bucket) const;

  /// Of replicas that take turns: its part of what they have together.
  [[nodiscard]] std::int64_t bytes() const noexcept;
  /// Bytes that are there for sending alone.
  [[nodiscard]] std::int64_t communication_bytes() const noexcept { return communication_bytes_; }

 private:
  struct Bucket {
    at::Tensor local;     // the sum of this replica's gradients, all of it; undefined: staged
    at::Tensor mean;      // what the reduction gives, or their sum: may be a part of `local`
    at::Tensor reduced;   // what one reduction gives
    at::Tensor residual;  // what compression has left out so far
    std::size_t missing = 0;
    bool is_closed = false;
    std::optional<AxisQueue::Call> call;
    at::Tensor message;  // under way
  };
  [[nodiscard]] at::Tensor view_of(const at::Tensor& flat, std::size_t index) const;
  [[nodiscard]] bool staging_is_free(std::size_t bucket) const;
  [[nodiscard]] at::Tensor staging(std::size_t bucket, bool compressed) const;
  void allocate_staging();
  void pass_on_sums();
  void start_ready(AxisQueue& queue);
  [[nodiscard]] bool is_ready(const Bucket& bucket) const;
  // The one at this place of order_.
  void start(std::size_t place, AxisQueue& queue);
  void complete(std::size_t place, AxisQueue& queue);
  [[nodiscard]] at::Tensor compressed(Bucket& bucket, const at::Tensor& values, std::size_t index);

  FlatLayout layout_;
  AxisNames axis_;
  FlatGradientOptions options_;
  std::int64_t replica_;
  std::size_t at_once_;                   // buckets that are staged or under way at one time
  std::shared_ptr<TurnGradients> turns_;  // of replicas that take turns
  std::int64_t replicas_here_ = 1;
  std::int64_t place_here_ = 0;
  std::vector<std::vector<std::int64_t>> sizes_;  // by parameter
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> held_;  // by parameter: its gradient until its bucket is staged
  std::vector<bool> has_;         // by parameter
  // at_once_ of each.
  std::vector<at::Tensor> staged_;     // whole buckets of summed gradients
  std::vector<at::Tensor> wire_;       // the same as they travel
  std::vector<std::size_t> order_;     // of the buckets' reductions
  std::vector<std::size_t> place_in_;  // by bucket: its place in order_
  std::size_t next_ = 0;               // the first in order_ that is not started
  std::size_t completed_ = 0;          // the first that is not complete
  bool first_ = true;
  bool last_ = true;
  std::int64_t bytes_ = 0;
  std::int64_t communication_bytes_ = 0;
};

}  // namespace lockstep
