#pragma once

#include <cstddef>
#include <vector>

#include "framework/base/element_type.h"

namespace lockstep::testing {

inline constexpr ElementType kTypes[] = {
    ElementType::float64, ElementType::float32, ElementType::float16, ElementType::bfloat16,
    ElementType::int64,   ElementType::int32,   ElementType::int16,   ElementType::int8,
    ElementType::uint8,   ElementType::boolean};
inline constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::mean,      ReduceOp::max,
                                    ReduceOp::min, ReduceOp::safe_mean, ReduceOp::mean_of_scaled};

/// True if there is such a reduction.
[[nodiscard]] bool is_allowed(ElementType type, ReduceOp op);

/// Returns random bits (zeros and ones for booleans) of each replica, the same in every process.
[[nodiscard]] std::vector<std::vector<std::byte>> random_inputs(int replicas, std::size_t bytes,
                                                                ElementType type);

/// Returns ways to have places in processes: all ways for up to 6 places, and beyond that the ways
/// in which each process has a block.
[[nodiscard]] std::vector<std::vector<std::vector<int>>> splits(int places);

}  // namespace lockstep::testing
