#pragma once

#include <cstddef>

namespace lockstep::reduce {

/// The type of a message's elements, floating ones first. Names are the usual ones ("float32").
enum class ElementType {
  float64,
  float32,
  float16,
  bfloat16,
  int64,
  int32,
  int16,
  int8,
  uint8,
  boolean,
};

/// How elements of several replicas become one. On booleans, sum is not defined (count them in
/// int64), max is "any" and min is "all". Integers wrap around. If an input is NaN, max and min are
/// NaN. The mean, of floating types only, is the sum divided by the number of replicas and then
/// rounded to the type.
enum class ReduceOp { sum, mean, max, min };

[[nodiscard]] bool is_floating(ElementType type);
[[nodiscard]] std::size_t size_of(ElementType type);
[[nodiscard]] const char* name_of(ElementType type);
[[nodiscard]] const char* name_of(ReduceOp op);

}  // namespace lockstep::reduce
