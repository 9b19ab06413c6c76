#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace lockstep {

/// Types of elements: messages' types, the floating ones first, then types that only files have.
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
  uint64,
  uint32,
  uint16,
  float8_e5m2,
  float8_e4m3,
};

/// Size and names of a type of elements; kElementTypes has them in the enumeration's order.
struct ElementTypeNames {
  std::size_t size;         ///< of an element, in bytes
  const char* name;         ///< the usual one
  std::string_view stored;  ///< in safetensors files
};
inline constexpr ElementTypeNames kElementTypes[] = {
    {8, "float64", "F64"},        {4, "float32", "F32"},
    {2, "float16", "F16"},        {2, "bfloat16", "BF16"},
    {8, "int64", "I64"},          {4, "int32", "I32"},
    {2, "int16", "I16"},          {1, "int8", "I8"},
    {1, "uint8", "U8"},           {1, "bool", "BOOL"},
    {8, "uint64", "U64"},         {4, "uint32", "U32"},
    {2, "uint16", "U16"},         {1, "float8_e5m2", "F8_E5M2"},
    {1, "float8_e4m3", "F8_E4M3"}};

[[nodiscard]] constexpr const ElementTypeNames& names_of(ElementType type) {
  return kElementTypes[static_cast<std::size_t>(type)];
}
[[nodiscard]] constexpr std::size_t size_of(ElementType type) {
  return names_of(type).size;
}
[[nodiscard]] constexpr const char* name_of(ElementType type) {
  return names_of(type).name;
}

/// Returns the type that safetensors files call `stored`; nothing if there is none.
[[nodiscard]] constexpr std::optional<ElementType> stored_type(std::string_view stored) {
  for (std::size_t i = 0; i < std::size(kElementTypes); ++i) {
    if (kElementTypes[i].stored == stored) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

/// An operation that makes one element of several replicas' elements. On booleans, sum is not
/// defined (count them in int64), max is "any" and min is "all". Integers wrap around. If an input
/// is NaN, max and min are NaN. The mean, of floating types only, is the sum divided by the number
/// of replicas and then rounded to the type. safe_mean first multiplies inputs by mean_scale(), so
/// that finite ones have a finite mean; its bits may differ from mean's only where an input or a
/// partial sum is below N · 2^-126. mean_of_scaled is safe_mean of inputs scaled so before.
enum class ReduceOp { sum, mean, max, min, safe_mean, mean_of_scaled };

/// Returns the largest power of two that is at most 1/N, for N replicas.
[[nodiscard]] constexpr double mean_scale(std::int64_t replicas) {
  return 1 / static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(replicas)));
}

[[nodiscard]] constexpr bool is_mean(ReduceOp op) {
  return op == ReduceOp::mean || op >= ReduceOp::safe_mean;
}

[[nodiscard]] constexpr bool is_floating(ElementType type) {
  return type <= ElementType::bfloat16;
}
[[nodiscard]] constexpr const char* name_of(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min", "mean", "mean"};
  return kNames[static_cast<std::size_t>(op)];
}

}  // namespace lockstep
