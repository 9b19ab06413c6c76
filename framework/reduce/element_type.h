#pragma once

#include "framework/base/element_type.h"

namespace lockstep {

/// How elements of several replicas become one. On booleans, sum is not defined (count them in
/// int64), max is "any" and min is "all". Integers wrap around. If an input is NaN, max and min are
/// NaN. The mean, of floating types only, is the sum divided by the number of replicas and then
/// rounded to the type.
enum class ReduceOp { sum, mean, max, min };

[[nodiscard]] constexpr bool is_floating(ElementType type) {
  return type <= ElementType::bfloat16;
}
[[nodiscard]] constexpr const char* name_of(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<std::size_t>(op)];
}

}  // namespace lockstep
