#include "framework/comm/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// Partial results of one block stay in the first-level cache: (levels + 1) * kBlock accumulators.
constexpr std::size_t kBlock = 512;
constexpr std::size_t kMaxLevels = 32;

struct BFloat16 {
  std::uint16_t bits;
};

float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return {static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
  const std::uint32_t nearest_even = 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((bits + nearest_even) >> 16)};
}

// What a type is accumulated in: halves in float32; integers unsigned, where wrapping is defined.
template <typename T>
struct Accumulator {
  using type = T;
  static type load(T value) { return value; }
  static T store(type value) { return value; }
};
template <>
struct Accumulator<_Float16> {
  using type = float;
  static type load(_Float16 value) { return static_cast<float>(value); }
  static _Float16 store(type value) { return static_cast<_Float16>(value); }
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
  static type load(BFloat16 value) { return to_float(value); }
  static BFloat16 store(type value) { return to_bfloat16(value); }
};

struct Sum {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      using Unsigned = std::make_unsigned_t<A>;
      return static_cast<A>(
          static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else {
      return a + b;
    }
  }
};
struct Mean : Sum {};
struct Max {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_floating_point_v<A>) return a > b || std::isnan(a) ? a : b;
    return a > b ? a : b;
  }
};
struct Min {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_floating_point_v<A>) return a < b || std::isnan(a) ? a : b;
    return a < b ? a : b;
  }
};

// What a combination of `count` replicas' values comes to.
template <typename Op, typename A>
A finished(A value, [[maybe_unused]] std::size_t count) {
  if constexpr (std::is_same_v<Op, Mean>) return value / static_cast<A>(count);
  return value;
}

template <typename T>
const T* elements(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

// Reduces one block the way a binary counter counts: replica pairs come in from the left, and as
// often as the count's low bits carry, the partial result at that level is combined with the new
// one. What is left on the levels at the end are complete subtrees, the largest (leftmost) highest:
// combining them from the lowest up gives the canonical tree.
template <typename T, typename Op>
void reduce_block(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                  std::size_t start, std::size_t count) {
  using A = typename Accumulator<T>::type;
  std::array<std::array<A, kBlock>, kMaxLevels> levels;  // NOLINT: filled before it is read
  std::size_t occupied = 0;                              // one bit a level

  for (std::size_t replica = 0; replica < inputs.size(); ++replica) {
    const T* values = elements<T>(inputs[replica]) + start;
    std::size_t level = 0;
    if ((occupied & 1U) == 0) {
      for (std::size_t i = 0; i < count; ++i) levels[0][i] = Accumulator<T>::load(values[i]);
    } else {
      level = static_cast<std::size_t>(std::countr_one(occupied));
      for (std::size_t i = 0; i < count; ++i) {
        levels[level][i] = Op::combine(levels[0][i], Accumulator<T>::load(values[i]));
      }
      for (std::size_t below = 1; below < level; ++below) {
        for (std::size_t i = 0; i < count; ++i) {
          levels[level][i] = Op::combine(levels[below][i], levels[level][i]);
        }
      }
    }
    ++occupied;
  }

  auto lowest = static_cast<std::size_t>(std::countr_zero(occupied));
  std::array<A, kBlock>& result = levels[lowest];
  for (std::size_t level = lowest + 1; (occupied >> level) != 0; ++level) {
    if (((occupied >> level) & 1U) == 0) continue;
    for (std::size_t i = 0; i < count; ++i) result[i] = Op::combine(levels[level][i], result[i]);
  }
  for (std::byte* output : outputs) {
    T* const values = reinterpret_cast<T*>(output) + start;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = Accumulator<T>::store(finished<Op>(result[i], inputs.size()));
    }
  }
}

template <typename T, typename Op>
void reduce_elements(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                     std::size_t bytes) {
  const std::size_t count = bytes / sizeof(T);
  if constexpr (std::is_same_v<typename Accumulator<T>::type, T>) {
    if (inputs.size() == 2 && outputs.size() == 1) {  // in one pass, without partial results
      T* const out = reinterpret_cast<T*>(outputs[0]);
      const T* const a = elements<T>(inputs[0]);
      const T* const b = elements<T>(inputs[1]);
      for (std::size_t i = 0; i < count; ++i) out[i] = finished<Op>(Op::combine(a[i], b[i]), 2);
      return;
    }
  }
  for (std::size_t start = 0; start < count; start += kBlock) {
    reduce_block<T, Op>(inputs, outputs, start, std::min(kBlock, count - start));
  }
}

template <typename T>
void reduce_type(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                 std::size_t bytes, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_elements<T, Sum>(inputs, outputs, bytes);
    case ReduceOp::mean:
      if constexpr (std::is_floating_point_v<typename Accumulator<T>::type>) {
        return reduce_elements<T, Mean>(inputs, outputs, bytes);
      }
      return;  // check_reduction has refused it
    case ReduceOp::max:
      return reduce_elements<T, Max>(inputs, outputs, bytes);
    case ReduceOp::min:
      return reduce_elements<T, Min>(inputs, outputs, bytes);
  }
}

}  // namespace

void check_reduction(const char* what, ElementType type, ReduceOp op) {
  if (type == ElementType::boolean && op == ReduceOp::sum) {
    throw ValueError(str(what, ": booleans have no sum; count them in int64"));
  }
  if (op == ReduceOp::mean && !is_floating(type)) {
    throw ValueError(str(what, ": ", name_of(type), " has no mean; sum it and divide"));
  }
}

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte> output, ElementType type,
            ReduceOp op) {
  std::byte* const only = output.data();
  reduce(inputs, {&only, 1}, output.size(), type, op);
}

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
            std::size_t bytes, ElementType type, ReduceOp op) {
  if (inputs.empty()) throw ValueError("reduce: no inputs");
  if (bytes % size_of(type) != 0) {
    throw ValueError(str("reduce: ", bytes, " bytes are no whole number of ", name_of(type)));
  }
  check_reduction("reduce", type, op);
  if (inputs.size() == 1) {
    for (std::byte* output : outputs) {
      if (bytes != 0 && output != inputs[0]) std::memcpy(output, inputs[0], bytes);
    }
    return;
  }
  switch (type) {
    case ElementType::float64:
      return reduce_type<double>(inputs, outputs, bytes, op);
    case ElementType::float32:
      return reduce_type<float>(inputs, outputs, bytes, op);
    case ElementType::float16:
      return reduce_type<_Float16>(inputs, outputs, bytes, op);
    case ElementType::bfloat16:
      return reduce_type<BFloat16>(inputs, outputs, bytes, op);
    case ElementType::int64:
      return reduce_type<std::int64_t>(inputs, outputs, bytes, op);
    case ElementType::int32:
      return reduce_type<std::int32_t>(inputs, outputs, bytes, op);
    case ElementType::int16:
      return reduce_type<std::int16_t>(inputs, outputs, bytes, op);
    case ElementType::int8:
      return reduce_type<std::int8_t>(inputs, outputs, bytes, op);
    case ElementType::uint8:
    case ElementType::boolean:
      return reduce_type<std::uint8_t>(inputs, outputs, bytes, op);
  }
}

}  // namespace lockstep
