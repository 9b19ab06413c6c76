#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/axes/environment.h"
#include "framework/base/non_copyable.h"
#include "framework/base/range.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/buffer_plan.h"
#include "framework/tree/flat_layout.h"

namespace lockstep::training {

/// Keeps a module's parameters in flat buckets for a trainer. Replicas that share memory hold one
/// copy together: see common_zeros(). If these are all replicas, a barrier replaces every exchange.
/// It changes the memory under a parameter's storage, so tensors that share the storage (tied ones,
/// views that a module keeps) follow. At the end each has ordinary memory of its own again.
///
/// A parameter whose elements lie in another order, such as a channels_last one, keeps this order:
/// its values are in the bucket, in the order of its shape as all others, and a copy of them in
/// memory of the replica's own is what the module sees. Whenever the bucket changes, so does that.
///
/// Buckets of groups other than 0 are cut, unless replicas own groups. Of a cut bucket each replica
/// keeps its shard, and has all of it only while it is gathered.
///
/// ZeroTrainer (zero.h) says what a program may do with its parameters meanwhile. Writes are
/// noticed by LibTorch's version counters and by a few remembered elements of each parameter.
/// (Read-only pages would show all writes, and cost 2 % of a step.) Those after the last check()
/// are told at the end, as a warning. Callers are not recorded by autograd (TrainerCall).
class FlatParameters : private NonCopyable {
 public:
  /// Moves the `parameters`, which keep their values, into buckets as planned. Those that lack
  /// memory (module_parameters.h) become zeros: restore what own() has, then publish(). No cut
  /// bucket is ever whole here. All replicas together, with equal values. Throws ValueError, naming
  /// them, for parameters that overlap, and for one that is a part of a storage which other tensors
  /// use. CommError if the host has not enough memory.
  FlatParameters(std::vector<std::string> names, std::vector<at::Tensor> parameters,
                 const BufferPlan& plan, AxisNames axis_name);
  ~FlatParameters();

  /// Whether all replicas hold one copy.
  [[nodiscard]] bool is_common() const noexcept { return holders_.size() == 1; }
  /// How many replicas hold this one's copy of the buckets that are not cut.
  [[nodiscard]] std::int64_t holders() const {
    return own_holders_.empty() ? 1 : std::ssize(own_holders_);
  }
  [[nodiscard]] const tree::FlatLayout& layout() const noexcept { return layout_; }
  /// Whether each replica updates everything itself.
  [[nodiscard]] bool updates_all() const;

  /// A part of a bucket, flat.
  struct Owned {
    Range place;
    at::Tensor values;
  };
  /// The parts of a bucket that this replica updates: BufferPlan::updated().
  [[nodiscard]] std::vector<Owned> own(std::size_t bucket) const;
  /// Call it after all replicas have updated their parts: all replicas then see all updates. Graphs
  /// that have saved older values are refused. All replicas together.
  /// With `late`, by bucket, it returns while such buckets still travel through `queue`, the last
  /// one first. Their parameters are on the meta device until gather(). Only with own_shard, for
  /// uncut buckets, and not if is_common().
  void publish(const std::vector<bool>& late = {}, collectives::AxisQueue* queue = nullptr);

  /// Throws ValueError, naming the parameter, if one was written outside of edit(), or replaced by
  /// a tensor that does not fit. Returns whether any was replaced by one that fits: for adopt().
  [[nodiscard]] bool check(const AxisCall& call) const;
  /// Takes over values that all replicas have replaced; returns the parameters' indices. Error,
  /// naming parameter and replicas, if they did not do the same. All replicas together.
  std::vector<std::size_t> adopt(const AxisCall& call);
  /// check(), and adopt() if any replica has replaced values. All replicas together.
  std::vector<std::size_t> adopt_replaced(const AxisCall& call);
  /// Calls `write`, which may write this replica's parameters, and takes over the changes, as
  /// adopt() does. If `write` throws, nothing has changed. All cut buckets must be gathered. All
  /// replicas together.
  std::vector<std::size_t> edit(const std::function<void()>& write, const AxisCall& call);

  /// Starts to gather a cut bucket, unless that has been started.
  void start_gathering(std::size_t bucket, collectives::AxisQueue& queue);
  /// Returns when the bucket is gathered, or its late update is there, and its parameters have
  /// their values.
  void gather(std::size_t bucket, collectives::AxisQueue& queue);
  /// Waits for a bucket that is being gathered, and frees its memory. Its parameters are then on
  /// the meta device. Tensors that autograd has saved have values again once it is gathered again.
  void drop(std::size_t bucket, collectives::AxisQueue& queue);
  [[nodiscard]] bool is_gathered(std::size_t bucket) const {
    return buckets_[bucket].gathered.defined();
  }

  /// Memory for other values of a bucket: that of a gathered one, which is dropped later; or new.
  [[nodiscard]] at::Tensor memory_for_others(std::size_t bucket) const;
  /// The bucket's parameters have the values in `memory`, of its size and dtype, until take_back().
  /// Graphs that have saved other values are refused.
  void lend(std::size_t bucket, const at::Tensor& memory);
  /// They have their own values again. A write meanwhile is an error of the next check().
  void take_back(std::size_t bucket);

  /// Memory of this replica's parameters, and the most that was gathered at one time.
  [[nodiscard]] MemoryUse use() const;

 private:
  struct Bucket {
    at::Tensor memory;    // all of it, flat; undefined while a cut one is not gathered
    at::Tensor own;       // the own shard of a cut one
    at::Tensor home;      // `memory`, while that is lent
    at::Tensor gathered;  // what becomes the memory of a cut one
    std::optional<collectives::AxisQueue::Call> gathering;
  };
  [[nodiscard]] bool is_cut(std::size_t bucket) const { return plan_.buckets[bucket].is_cut; }
  [[nodiscard]] bool writes_first() const;
  void wait_for_holders() const;
  [[nodiscard]] at::Tensor own_shard(std::size_t index, const at::Tensor& bucket) const;
  void place(std::size_t bucket);
  void cut(std::size_t bucket);
  void set_memory(std::size_t bucket, const at::Tensor& memory);
  void hide(std::size_t index);
  enum class State { in_place, replaced, written, unfit };
  [[nodiscard]] State state_of(std::size_t index) const;
  void tell_writes() const;
  [[nodiscard]] bool keeps_order(std::size_t index) const;
  [[nodiscard]] at::Tensor memory_of(std::size_t index) const;
  void put(std::size_t index, const at::Tensor& memory);
  void note(std::size_t index);
  void put_anew(std::size_t index, const at::Tensor& memory);
  [[nodiscard]] bool has_storage(std::size_t index) const;
  void let_go(std::size_t index);
  void check_fit(std::size_t index, const AxisCall& call) const;
  void show(std::size_t bucket);
  void make_whole();
  std::vector<std::size_t> take(const std::vector<at::Tensor>& fresh, const AxisCall& call);

  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  BufferPlan plan_;
  const tree::FlatLayout& layout_ = plan_.layout;
  AxisNames axis_;
  std::int64_t replica_ = plan_.replica;
  ParameterUpdates updates_ = plan_.options.updates;
  AxisIndexGroups holders_;  // of the buckets that are not cut; empty without these
  std::vector<std::int64_t> own_holders_;
  std::vector<Bucket> buckets_;
  struct Placed {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides{};  ///< of another order than the bucket's; otherwise empty
    at::ScalarType dtype = at::kFloat;
    c10::Storage storage;      ///< the parameter's, as it was left
    std::int64_t version = 0;  ///< of its values, likewise
    std::uint64_t sample = 0;  ///< of a few of them, likewise
    bool was_written = false;  ///< before it was hidden
    at::Tensor hidden;         ///< the parameter as it was before it was hidden
  };
  std::vector<Placed> placed_;
  std::int64_t bytes_ = 0;
  std::int64_t uncut_bytes_ = 0;
  std::int64_t gathered_ = 0;
  std::int64_t gathered_peak_ = 0;
  mutable bool has_told_ = false;  // of a write, by an error
};

}  // namespace lockstep::training
