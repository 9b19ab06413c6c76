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
#include "framework/collectives/axis_queue.h"
#include "framework/tree/flat_layout.h"

namespace lockstep::training {

/// What replica r updates: all, its shard of each bucket, or the buckets of group r + 1. Where
/// replicas share memory `all` is its shard, too.
enum class ParameterUpdates { all, own_shard, own_group };

/// A module's parameters while a trainer keeps their values in flat buckets. Where all replicas of
/// the axis can share memory they hold one copy together, and a barrier stands for every exchange.
/// The memory under a parameter's storage is what changes, so that tensors which share that storage
/// (tied ones, views that a module keeps) go with it; at the end each parameter has ordinary memory
/// of its own again.
///
/// Unless groups are what replicas own, buckets of groups other than 0 are cut (replicas that share
/// memory have none): each replica has its shard, and all while they are gathered.
///
/// What a program may do with its parameters meanwhile, ZeroTrainer (zero.h) says. Writes show in
/// LibTorch's version counters and in a few elements of each parameter, which are remembered.
/// (Read-only pages would show all writes, and cost 2 % of a step.)
class FlatParameters {
 public:
  /// Puts the `parameters`, which keep their values, into buckets that `layout` describes. All
  /// replicas together, with equal values. ValueError, naming them, for parameters that overlap,
  /// and for one that is a part of a storage which others use, too; CommError if the host has not
  /// enough memory.
  FlatParameters(std::vector<std::string> names, std::vector<at::Tensor> parameters,
                 const tree::FlatLayout& layout, AxisNames axis_name, ParameterUpdates updates);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  /// Whether the replicas hold one copy.
  [[nodiscard]] bool is_common() const noexcept { return is_common_; }
  [[nodiscard]] const tree::FlatLayout& layout() const noexcept { return layout_; }
  /// Whether each replica updates everything itself.
  [[nodiscard]] bool updates_all() const noexcept {
    return updates_ == ParameterUpdates::all && !is_common_;
  }

  /// What this replica updates of a bucket, flat, unless it owns groups.
  [[nodiscard]] const at::Tensor& own(std::size_t bucket) const { return buckets_[bucket].own; }
  /// After all replicas have updated what is theirs: makes it everybody's. Graphs that have saved
  /// older values are refused. All replicas together.
  void publish();

  /// Throws ValueError, naming it, for a parameter that was written outside of edit(), or replaced
  /// by what does not fit. Returns whether any was replaced by what fits: for adopt().
  [[nodiscard]] bool check(const AxisCall& call) const;
  /// Takes over the values that all replicas have replaced; returns whose those are. Error, naming
  /// parameter and replicas, where they have not done the same. All replicas together.
  std::vector<std::size_t> adopt(const AxisCall& call);
  /// Calls `write`, in which this replica writes parameters as it likes, and takes over what it has
  /// changed, as adopt(). If `write` throws nothing has changed. All replicas together, while all
  /// cut buckets are gathered.
  std::vector<std::size_t> edit(const std::function<void()>& write, const AxisCall& call);

  /// Begins to gather a cut bucket, unless that has begun.
  void start_gathering(std::size_t bucket, collectives::AxisQueue& queue);
  /// Returns when it is gathered: its parameters have their values.
  void gather(std::size_t bucket, collectives::AxisQueue& queue);
  /// Waits for a bucket that is being gathered, and gives its memory back: its parameters are on
  /// the meta device. Tensors that autograd has saved have values again when it is gathered again.
  void drop(std::size_t bucket, collectives::AxisQueue& queue);
  [[nodiscard]] bool is_gathered(std::size_t bucket) const {
    return buckets_[bucket].gathered.defined();
  }

  /// Bytes of this replica's own parameters; where they are common, of all replicas together.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// What bytes() will be.
  [[nodiscard]] static std::int64_t predicted_bytes(const tree::FlatLayout& layout);
  /// What gathered_peak() will be where a block is gathered beside the one that runs.
  [[nodiscard]] static std::int64_t predicted_gathered(const tree::FlatLayout& layout);
  /// The most bytes that were gathered at one time.
  [[nodiscard]] std::int64_t gathered_peak() const noexcept { return gathered_peak_; }

 private:
  struct Bucket {
    at::Tensor memory;  // all of it, flat; undefined while a cut one is not gathered
    at::Tensor own{};
    at::Tensor gathered{};  // what becomes the memory of a cut one
    std::optional<collectives::AxisQueue::Call> gathering{};
  };
  [[nodiscard]] bool is_cut(std::size_t bucket) const {
    return updates_ != ParameterUpdates::own_group && layout_.buckets()[bucket].group != 0;
  }
  [[nodiscard]] at::Tensor own_shard(std::size_t index, const at::Tensor& bucket) const;
  void set_memory(std::size_t bucket, const at::Tensor& memory);
  enum class State { in_place, replaced, written, unfit };
  [[nodiscard]] State state_of(std::size_t index) const;
  [[nodiscard]] at::Tensor place_of(std::size_t index) const;
  void put(std::size_t index, const at::Tensor& memory);
  void note(std::size_t index);
  void put_anew(std::size_t index, const at::Tensor& memory);
  [[nodiscard]] bool has_storage(std::size_t index) const;
  void let_go(std::size_t index);
  void check_fit(std::size_t index, const AxisCall& call) const;
  void make_whole();
  std::vector<std::size_t> take(const std::vector<at::Tensor>& fresh, const AxisCall& call);

  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  tree::FlatLayout layout_;
  AxisNames axis_;
  bool is_common_ = false;
  ParameterUpdates updates_;
  std::vector<Bucket> buckets_;
  struct Placed {
    std::vector<std::int64_t> sizes;
    at::ScalarType dtype = at::kFloat;
    c10::Storage storage;      ///< the parameter's, as it was left
    std::int64_t version = 0;  ///< of its values, likewise
    std::uint64_t sample = 0;  ///< of a few of them, likewise
    bool was_written = false;  ///< before it was hidden
    at::Tensor hidden;         ///< the parameter as it was before it was hidden
  };
  std::vector<Placed> placed_;
  std::int64_t bytes_ = 0;
  std::int64_t gathered_ = 0;
  std::int64_t gathered_peak_ = 0;
};

}  // namespace lockstep::training
