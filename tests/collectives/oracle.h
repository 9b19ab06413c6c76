#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"
#include "framework/base/random.h"

namespace lockstep::testing {

/// Choices as a pure function of a key, so that every replica makes the same ones.
class Draw {
 public:
  explicit Draw(const Key& key) : generator_(key.bits()) {}

  [[nodiscard]] std::uint64_t bits() { return generator_(); }
  /// Draws from `low` to `high`, both included.
  [[nodiscard]] std::int64_t between(std::int64_t low, std::int64_t high);
  [[nodiscard]] bool coin() { return between(0, 1) == 1; }

 private:
  std::mt19937_64 generator_;
};

/// Returns a tensor in one of several layouts: transposed, a strided slice, broadcast by strides of
/// zero, negated lazily, or (often enough) contiguous.
[[nodiscard]] at::Tensor random_tensor(Draw& draw, at::IntArrayRef sizes, at::ScalarType type);

/// A random partition of 0 … replicas-1, its parts and their order random; {} in a third of all
/// draws.
[[nodiscard]] AxisIndexGroups random_groups(Draw& draw, std::int64_t replicas, bool equal_sizes);

/// The members of the group that replica `index` is in.
[[nodiscard]] std::vector<std::int64_t> group_of(const AxisIndexGroups& groups, std::int64_t index,
                                                 std::int64_t replicas);

// The collectives' results by definition, from the values of a group in the group's order.
[[nodiscard]] at::Tensor oracle_psum(const std::vector<at::Tensor>& values);
[[nodiscard]] at::Tensor oracle_pmean(const std::vector<at::Tensor>& values);
[[nodiscard]] at::Tensor oracle_pmax(const std::vector<at::Tensor>& values);
[[nodiscard]] at::Tensor oracle_pmin(const std::vector<at::Tensor>& values);
[[nodiscard]] at::Tensor oracle_all_gather(const std::vector<at::Tensor>& values, std::int64_t axis,
                                           bool tiled);
/// Returns the result of the group's replica at `place`.
[[nodiscard]] at::Tensor oracle_psum_scatter(const std::vector<at::Tensor>& values,
                                             std::size_t place, std::int64_t dimension, bool tiled);
[[nodiscard]] at::Tensor oracle_all_to_all(const std::vector<at::Tensor>& values, std::size_t place,
                                           std::int64_t split_axis, std::int64_t concat_axis,
                                           bool tiled);
[[nodiscard]] at::Tensor oracle_ppermute(
    const std::vector<at::Tensor>& values, std::size_t place,
    const std::vector<std::pair<std::int64_t, std::int64_t>>& perm);
[[nodiscard]] at::Tensor oracle_pargmax(const std::vector<at::Tensor>& values);
[[nodiscard]] at::Tensor oracle_pargmin(const std::vector<at::Tensor>& values);

/// The tables that one replica passes to ragged_all_to_all beside its operand and output.
struct RaggedNumbers {
  std::vector<std::int64_t> input_offsets;
  std::vector<std::int64_t> send_sizes;
  std::vector<std::int64_t> output_offsets;
  std::vector<std::int64_t> recv_sizes;
};
/// `tables` in the group's order; `output` is the one of the replica at `place`.
[[nodiscard]] at::Tensor oracle_ragged_all_to_all(const std::vector<at::Tensor>& operands,
                                                  const at::Tensor& output,
                                                  const std::vector<RaggedNumbers>& tables,
                                                  std::size_t place);

/// True if dtype, shape and every bit are the same.
[[nodiscard]] bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::testing
