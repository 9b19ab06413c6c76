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

/// Over which axes of its map each tensor of a replica varies, by how it was made. One not made in
/// the map is the same on all. Tensors that share memory vary alike. For the replica's thread.
class Variance {
 public:
  /// `where` is the map's call.
  Variance(std::vector<std::string> axes, std::source_location where);

  [[nodiscard]] std::source_location where() const noexcept { return where_; }
  [[nodiscard]] AxisSet all() const noexcept;
  /// The axes of the map that are among the names.
  [[nodiscard]] AxisSet set_of(const std::vector<std::string>& names) const;
  [[nodiscard]] std::vector<std::string> names_of(AxisSet axes) const;

  [[nodiscard]] AxisSet of(const at::Tensor& tensor) const;
  [[nodiscard]] bool knows(const at::Tensor& tensor) const;
  /// The tensor was made: it varies over these axes, and over those that it varied over before.
  void add(const at::Tensor& tensor, AxisSet axes);
  /// Values that vary over these axes were written into the tensor: all tensors that share its
  /// memory vary over them now.
  void add_written(const at::Tensor& tensor, AxisSet axes);
  /// The same values in the same memory as a tensor without a graph that varies over `axes`, too:
  /// what is written into one of them is seen in the other, by autograd as well.
  [[nodiscard]] at::Tensor alias(const at::Tensor& tensor, AxisSet axes);

  /// What operations that were seen only from outside have read as numbers: see track().
  AxisSet escaped = 0;
  /// How many composite operations are running, one within another.
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

/// The Variance of the replica that this thread runs; nullptr where nothing is tracked.
[[nodiscard]] Variance* current_variance() noexcept;

/// The dispatcher's key that makes every operation of this thread pass by: that of out-of-tree
/// modes, above autograd, which LibTorch itself registers nothing for.
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
