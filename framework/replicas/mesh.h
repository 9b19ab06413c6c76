#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"

namespace lockstep {

/// Replicas laid out along named axes, row-major: `Mesh({{"data", 4}, {"model", 2}})` has 8
/// replicas, and replicas of one data index are neighbours. In a launched job the mesh is laid over
/// the replicas of all members, in order. As jax.sharding.Mesh.
class Mesh {
 public:
  using Axes = std::vector<std::pair<std::string, std::int64_t>>;

  /// ValueError unless there are axes, their names differ and their sizes are positive.
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
  /// The number of replicas.
  [[nodiscard]] std::int64_t size() const noexcept {
    std::int64_t size = 1;
    for (const auto& axis : axes_) size *= axis.second;
    return size;
  }

 private:
  Axes axes_;
};

/// In P(): a dimension that is not cut.
struct None {};
inline constexpr None none;

/// Which mesh axes cut which dimension of an array: see P().
using PartitionSpec = std::vector<std::vector<std::string>>;

/// How one dimension is cut: not at all (none), along an axis ("data"), or along several as if they
/// were one ({"data", "model"}, row-major).
class PartitionEntry {
 public:
  PartitionEntry(None) {}                                       // NOLINT
  PartitionEntry(const char* axis) : axes_{axis} {}             // NOLINT
  PartitionEntry(std::string axis) : axes_{std::move(axis)} {}  // NOLINT
  PartitionEntry(std::initializer_list<const char*> axes) : axes_(axes.begin(), axes.end()) {}

  [[nodiscard]] const std::vector<std::string>& axes() const noexcept { return axes_; }

 private:
  std::vector<std::string> axes_;
};

/// `P("data")` cuts dimension 0 along "data", `P(none, "model")` dimension 1 along "model",
/// `P({"data", "model"})` dimension 0 along both. Axes that are not named hold copies; P() is the
/// whole array everywhere. As jax.sharding.PartitionSpec.
[[nodiscard]] inline PartitionSpec P() {
  return {};
}
[[nodiscard]] inline PartitionSpec P(const PartitionEntry& first) {
  return {first.axes()};
}
[[nodiscard]] inline PartitionSpec P(const PartitionEntry& first, const PartitionEntry& second) {
  return {first.axes(), second.axes()};
}
/// Up to six dimensions; for more write the PartitionSpec itself.
[[nodiscard]] inline PartitionSpec P(const PartitionEntry& first, const PartitionEntry& second,
                                     const PartitionEntry& third,
                                     const PartitionEntry& fourth = none,
                                     const PartitionEntry& fifth = none,
                                     const PartitionEntry& sixth = none) {
  PartitionSpec spec;
  for (const PartitionEntry* entry : {&first, &second, &third, &fourth, &fifth, &sixth}) {
    spec.push_back(entry->axes());
  }
  while (spec.size() > 3 && spec.back().empty()) spec.pop_back();
  return spec;
}

}  // namespace lockstep
