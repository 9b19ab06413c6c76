#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/placed_parameters.h"
#include "framework/tree/flat_layout.h"

namespace lockstep {

/// What each replica updates of a bucket, where replicas do not share memory: there it is its
/// shard.
enum class ParameterUpdates { all, own_shard };

/// Parameters in flat buckets (PlacedParameters). Buckets of groups other than 0, which replicas
/// that share memory have none of, are cut: each replica has its shard, and all while they are
/// gathered. In shared memory a shard's owner writes it, and a barrier stands for every exchange.
class FlatParameters {
 public:
  /// As PlacedParameters, with errors as theirs.
  FlatParameters(const std::vector<std::string>& names, const std::vector<at::Tensor>& parameters,
                 const FlatLayout& layout, const AxisNames& axis_name, ParameterUpdates updates);
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  /// Whether the replicas hold one copy.
  [[nodiscard]] bool is_common() const noexcept { return placed_.is_common(); }
  [[nodiscard]] const FlatLayout& layout() const noexcept { return placed_.layout(); }
  /// Whether each replica updates everything itself.
  [[nodiscard]] bool updates_all() const noexcept;

  /// What this replica updates of a bucket, flat.
  [[nodiscard]] const at::Tensor& own(std::size_t bucket) const { return buckets_[bucket].own; }
  /// After all replicas have updated what is theirs: makes it everybody's.
  void publish();
  /// As PlacedParameters::check and adopt.
  [[nodiscard]] bool check(const AxisCall& call) const { return placed_.check(call); }
  std::vector<std::size_t> adopt(const AxisCall& call) { return placed_.adopt(call); }
  /// As PlacedParameters::edit, while all cut buckets are gathered.
  std::vector<std::size_t> edit(const std::function<void()>& write, const AxisCall& call);

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
  /// What bytes() will be.
  [[nodiscard]] static std::int64_t predicted_bytes(const FlatLayout& layout);
  /// What gathered_peak() will be where a block is gathered beside the one that runs.
  [[nodiscard]] static std::int64_t predicted_gathered(const FlatLayout& layout);
  /// The most bytes that were gathered at one time.
  [[nodiscard]] std::int64_t gathered_peak() const noexcept { return gathered_peak_; }

 private:
  struct Bucket {
    at::Tensor own;
    at::Tensor gathered;  // the memory of a cut bucket that is whole
    std::optional<AxisQueue::Call> gathering;
  };
  [[nodiscard]] bool is_cut(std::size_t bucket) const {
    return layout().buckets()[bucket].group != 0;
  }
  AxisNames axis_;
  ParameterUpdates updates_;
  PlacedParameters placed_;
  std::vector<Bucket> buckets_;
  std::int64_t bytes_ = 0;
  std::int64_t gathered_ = 0;
  std::int64_t gathered_peak_ = 0;
};

}  // namespace lockstep
