#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/axes/environment.h"
#include "framework/tree/flat_layout.h"

namespace lockstep {

/// A module's parameters while a trainer keeps their values in flat buckets. Where all replicas of
/// the axis can share memory they hold one copy together. The memory under a parameter's storage is
/// what changes, so that tensors which share that storage (tied ones, views that a module keeps)
/// go with it; at the end each parameter has ordinary memory of its own again.
///
/// Between the trainer's calls a program may replace a parameter's values (torch::load, set_data):
/// they are taken over, if all replicas do the same. It writes into them by edit() alone: what is
/// written in place otherwise is an error, with private copies as with a common one. LibTorch's
/// version counters tell of it; what goes around them (p.data().mul_()) shows in a few elements of
/// each parameter, which are remembered. (Read-only pages would show all of it, and cost 2 % of a
/// step.)
class PlacedParameters {
 public:
  /// Puts the `parameters`, which keep their values, into buckets that `layout` describes. All
  /// replicas together, with equal values. ValueError, naming them, for parameters that overlap,
  /// and for one that is a part of a storage which others use, too; CommError if the host has not
  /// enough memory.
  PlacedParameters(std::vector<std::string> names, std::vector<at::Tensor> parameters,
                   const FlatLayout& layout, AxisNames axis_name);
  ~PlacedParameters();
  PlacedParameters(const PlacedParameters&) = delete;
  PlacedParameters& operator=(const PlacedParameters&) = delete;

  /// Whether the replicas hold one copy.
  [[nodiscard]] bool is_common() const noexcept { return is_common_; }
  [[nodiscard]] const FlatLayout& layout() const noexcept { return layout_; }
  /// All of a bucket, flat.
  [[nodiscard]] const at::Tensor& bucket(std::size_t index) const { return buckets_[index]; }

  /// Throws ValueError, naming it, for a parameter that was written outside of edit(), or replaced
  /// by what does not fit. Returns whether any was replaced by what fits: for adopt().
  [[nodiscard]] bool check(const AxisCall& call) const;
  /// Takes over the values that all replicas have replaced; returns whose those are. Error, naming
  /// parameter and replicas, where they have not done the same. All replicas together.
  std::vector<std::size_t> adopt(const AxisCall& call);
  /// Calls `write`, in which this replica writes parameters as it likes, and takes over what it has
  /// changed, as adopt(). If `write` throws nothing has changed. All replicas together.
  std::vector<std::size_t> edit(const std::function<void()>& write, const AxisCall& call);
  /// The trainer has written the buckets: graphs that have saved older values are refused.
  void note_update();

  /// Puts `memory` (flat, as long as the bucket) under a bucket's parameters in place of what was
  /// there. Undefined: they have no values, and every use of them is LibTorch's error of a tensor
  /// on the meta device.
  void set_memory(std::size_t bucket, const at::Tensor& memory);

 private:
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
  void hide(std::size_t index);
  void show(std::size_t index);
  std::vector<std::size_t> take(const std::vector<at::Tensor>& fresh, const AxisCall& call);

  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  FlatLayout layout_;
  AxisNames axis_;
  bool is_common_ = false;
  std::vector<at::Tensor> buckets_;
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
};

}  // namespace lockstep
