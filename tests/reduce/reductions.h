#pragma once

#include <cstddef>
#include <vector>

#include "framework/reduce/element_type.h"

namespace lockstep::testing {

inline constexpr reduce::ElementType kTypes[] = {
    reduce::ElementType::float64,  reduce::ElementType::float32, reduce::ElementType::float16,
    reduce::ElementType::bfloat16, reduce::ElementType::int64,   reduce::ElementType::int32,
    reduce::ElementType::int16,    reduce::ElementType::int8,    reduce::ElementType::uint8,
    reduce::ElementType::boolean};
inline constexpr reduce::ReduceOp kOps[] = {reduce::ReduceOp::sum, reduce::ReduceOp::mean,
                                            reduce::ReduceOp::max, reduce::ReduceOp::min};

/// Whether there is such a reduction.
[[nodiscard]] bool is_allowed(reduce::ElementType type, reduce::ReduceOp op);

/// Random bits (zeros and ones for booleans) of each replica; the same in every process.
[[nodiscard]] std::vector<std::vector<std::byte>> random_inputs(int replicas, std::size_t bytes,
                                                                reduce::ElementType type);

/// Ways to have places in processes: all of them for up to 6 places, and for more those in which
/// each process has a block.
[[nodiscard]] std::vector<std::vector<std::vector<int>>> splits(int places);

}  // namespace lockstep::testing
