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

/// How elements of several replicas become one. On booleans sum is not defined (count them in
/// int64), max is "any" and min is "all". Integers wrap around. A NaN in a max or min is the
/// result. mean is the sum divided by the number of replicas before it is rounded to the type, of
/// floating types only.
enum class ReduceOp { sum, mean, max, min };

[[nodiscard]] bool is_floating(ElementType type);
[[nodiscard]] std::size_t size_of(ElementType type);
[[nodiscard]] const char* name_of(ElementType type);
[[nodiscard]] const char* name_of(ReduceOp op);

}  // namespace lockstep::reduce
