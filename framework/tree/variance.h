#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "framework/base/scoped_value.h"

namespace lockstep::tree {

/// Some axes of one map: bit a is its axis a.
using AxisSet = std::uint64_t;

/// The axes of its map over which each tensor of a replica varies, by how it was made: none if it
/// was not made in the map. Tensors that share memory vary alike. For the replica's thread.
class Variance {
 public:
  /// `where` is the map's call.
  Variance(std::vector<std::string> axes, std::source_location where);

  [[nodiscard]] std::source_location where() const noexcept { return where_; }
  [[nodiscard]] AxisSet all() const noexcept;
  /// Returns the axes of the map that are among the names.
  [[nodiscard]] AxisSet set_of(const std::vector<std::string>& names) const;
  [[nodiscard]] std::vector<std::string> names_of(AxisSet axes) const;

  [[nodiscard]] AxisSet of(const at::Tensor& tensor) const;
  [[nodiscard]] bool knows(const at::Tensor& tensor) const;
  /// Notes that the tensor was made: it varies over these axes, beside those of earlier calls.
  void add(const at::Tensor& tensor, AxisSet axes);
  /// Notes that values which vary over these axes were written into the tensor: all tensors that
  /// share its memory vary over them now.
  void add_written(const at::Tensor& tensor, AxisSet axes);
  /// Returns a tensor without a graph on the same memory, which varies over `axes`, too. A write
  /// into one of the two is seen in the other, by autograd as well.
  [[nodiscard]] at::Tensor alias(const at::Tensor& tensor, AxisSet axes);

  /// The axes of values that parts of composite operations have read as numbers: see track().
  AxisSet escaped = 0;
  /// The number of composite operations that are running, one within another.
  int depth = 0;

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps its address from being used again
    AxisSet axes = 0;
    const c10::StorageImpl* aliased = nullptr;  // lives as long as this one's memory
  };
  Entry& entry_of(const at::Tensor& tensor);

  std::vector<std::string> axes_;
  std::source_location where_;
  std::unordered_map<const c10::StorageImpl*, Entry> entries_;
  std::size_t swept_ = 1024;
};

/// Returns the Variance of the replica that this thread runs; nullptr where nothing is tracked.
[[nodiscard]] Variance* current_variance() noexcept;

/// The dispatcher's key that makes every operation of this thread pass by: the key of out-of-tree
/// modes, above autograd, for which LibTorch itself registers nothing.
inline constexpr auto kVarianceKey = c10::DispatchKey::DeferredInit;

/// While it lives this thread's operations are tracked.
class VarianceScope : ScopedValue<Variance*> {
 public:
  explicit VarianceScope(Variance& variance) noexcept;

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
};

/// While it lives this thread's operations are not tracked: its owner tracks them as one.
class Untracked : ScopedValue<Variance*> {
 public:
  Untracked() noexcept;

 private:
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

}  // namespace lockstep::tree
