#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/axes/axis_names.h"
#include "framework/base/text.h"
#include "framework/tree/prefix_tree.h"

namespace lockstep {

/// Replicas laid out along named axes, row-major: `Mesh({{"data", 4}, {"model", 2}})` has 8
/// replicas, and replicas of one data index are neighbours. In a launched job the mesh is laid over
/// the replicas of all members, in order. Follows jax.sharding.Mesh.
class Mesh {
 public:
  using Axes = std::vector<std::pair<std::string, std::int64_t>>;

  /// Throws ValueError unless there are axes, their names differ and their sizes are positive.
  explicit Mesh(Axes axes) : axes_(std::move(axes)) {
    require(!axes_.empty(), "Mesh: at least one axis is needed");
    for (const auto& [name, size] : axes_) {
      require(!name.empty(), "Mesh: an axis name must not be empty");
      require(size >= 1, "Mesh: axis '", name, "' has size ", size, "; it must be at least 1");
      require(std::ranges::count(axes_, name, &Axes::value_type::first) == 1, "Mesh: axis '", name,
              "' stands twice");
    }
  }
  Mesh(std::initializer_list<std::pair<std::string, std::int64_t>> axes) : Mesh(Axes(axes)) {}

  [[nodiscard]] const Axes& axes() const noexcept { return axes_; }
  /// Returns the number of replicas.
  [[nodiscard]] std::int64_t size() const noexcept {
    std::int64_t size = 1;
    for (const auto& axis : axes_) size *= axis.second;
    return size;
  }

 private:
  Axes axes_;
};

/// The mesh axes that cut each dimension of an array: see P().
using PartitionSpec = std::vector<std::vector<std::string>>;

/// The cut of one dimension: none, along "data", or along {"data", "model"} as one axis, row-major.
class PartitionEntry {
 public:
  PartitionEntry(std::nullopt_t) : axes_(std::in_place) {}  // NOLINT
  PartitionEntry(std::initializer_list<std::string_view> axes) : axes_(AxisNames(axes).names()) {}
  template <typename T>
  requires(!std::is_same_v<T, PartitionEntry>) PartitionEntry(const T& axes) {  // NOLINT
    constexpr bool is_name =
        std::is_convertible_v<const T&, AxisNames> && !std::is_null_pointer_v<T>;
    static_assert(is_name,
                  "lockstep: P has an entry for each dimension: the name of an axis, several as "
                  "{\"data\", \"model\"}, or none where it is not cut");
    if constexpr (is_name) axes_ = AxisNames(axes).names();
  }

  /// Returns the entry of a dimension that P() was not told of.
  [[nodiscard]] static PartitionEntry absent() { return PartitionEntry(Absent()); }
  /// Returns the axes; none if absent.
  [[nodiscard]] const std::optional<std::vector<std::string>>& axes() const noexcept {
    return axes_;
  }

 private:
  struct Absent {};
  explicit PartitionEntry(Absent) {}

  std::optional<std::vector<std::string>> axes_;
};

/// `P("data")` cuts dimension 0 along "data", `P(none, "model")` dimension 1 along "model",
/// `P({"data", "model"})` dimension 0 along both. Axes that are not named hold copies; P() is the
/// whole array everywhere. P() takes up to six dimensions; for more write the PartitionSpec itself.
/// Follows jax.sharding.PartitionSpec.
[[nodiscard]] inline PartitionSpec P(const PartitionEntry& first = PartitionEntry::absent(),
                                     const PartitionEntry& second = PartitionEntry::absent(),
                                     const PartitionEntry& third = PartitionEntry::absent(),
                                     const PartitionEntry& fourth = PartitionEntry::absent(),
                                     const PartitionEntry& fifth = PartitionEntry::absent(),
                                     const PartitionEntry& sixth = PartitionEntry::absent()) {
  PartitionSpec spec;
  for (const PartitionEntry* entry : {&first, &second, &third, &fourth, &fifth, &sixth}) {
    if (entry->axes()) spec.push_back(*entry->axes());
  }
  return spec;
}

}  // namespace lockstep
