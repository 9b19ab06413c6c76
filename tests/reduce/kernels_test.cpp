#include "framework/reduce/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "framework/reduce/reduce.h"
#include "tests/catch.h"
#include "tests/reduce/reductions.h"

using namespace lockstep;
using testing::kTypes;

namespace {

using Bytes = std::vector<std::byte>;

// Element types as the oracle sees them: one element at a time.

template <typename T>
struct Exact {
  using Element = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};

struct BFloat16 {
  using Element = std::uint16_t;
  static float widen(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  // Returns the nearer of the two bfloat16 around a value, or the even one of two as near.
  static std::uint16_t narrow(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto below = static_cast<std::uint16_t>(bits >> 16);
    if (std::isnan(value)) return static_cast<std::uint16_t>(below | 0x40U);
    const std::uint32_t rest = bits & 0xffffU;
    const bool up = rest > 0x8000U || (rest == 0x8000U && below % 2 == 1);
    return static_cast<std::uint16_t>(below + (up ? 1 : 0));
  }
};

struct Float16 {
  using Element = std::uint16_t;
  static float widen(std::uint16_t bits) {
    const float value = static_cast<float>(std::bit_cast<_Float16>(bits));
    if (!std::isnan(value)) return value;
    return std::bit_cast<float>(((bits & 0x8000U) << 16) | 0x7fc00000U | ((bits & 0x3ffU) << 13));
  }
  static std::uint16_t narrow(float value) {
    if (!std::isnan(value)) return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | 0x7e00U | ((bits >> 13) & 0x3ffU));
  }
};

template <typename T>
bool is_nan([[maybe_unused]] T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <typename T>
T combined(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
    case ReduceOp::safe_mean:
    case ReduceOp::mean_of_scaled:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
      } else {
        return a + b;
      }
    case ReduceOp::max:
      if (a == b) return std::signbit(static_cast<double>(a)) ? b : a;
      return a > b || is_nan(a) ? a : b;
    case ReduceOp::min:
      if (a == b) return std::signbit(static_cast<double>(a)) ? a : b;
      return a < b || is_nan(a) ? a : b;
  }
  throw std::logic_error("unknown operation");
}

// The canonical tree as its definition reads: split at the largest power of two below the count.
template <typename T>
T tree(const T* values, std::size_t count, ReduceOp op) {
  if (count == 1) return values[0];
  const std::size_t left = std::bit_floor(count - 1);
  return combined(tree(values, left, op), tree(values + left, count - left, op), op);
}

template <typename Format>
Bytes expected(const std::vector<Bytes>& inputs, ReduceOp op) {
  using Element = typename Format::Element;
  using Wide = decltype(Format::widen(Element{}));
  Bytes result(inputs[0].size());
  std::vector<Wide> values(inputs.size());
  double scale = 1;
  while (scale * static_cast<double>(inputs.size()) > 1) scale /= 2;
  double divisor = static_cast<double>(inputs.size());
  if (op != ReduceOp::mean) divisor *= scale;
  for (std::size_t at = 0; at < result.size(); at += sizeof(Element)) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Element element;
      std::memcpy(&element, inputs[i].data() + at, sizeof(Element));
      values[i] = Format::widen(element);
      if (op == ReduceOp::safe_mean)
        values[i] = static_cast<Wide>(values[i] * static_cast<Wide>(scale));
    }
    Wide value = tree(values.data(), values.size(), op);
    if (is_mean(op)) value = static_cast<Wide>(value / static_cast<Wide>(divisor));
    if (is_nan(value) && (op == ReduceOp::sum || is_mean(op))) {
      value = std::numeric_limits<Wide>::quiet_NaN();
    }
    const Element element = Format::narrow(value);
    std::memcpy(result.data() + at, &element, sizeof(Element));
  }
  return result;
}

Bytes expected(const std::vector<Bytes>& inputs, ElementType type, ReduceOp op) {
  switch (type) {
    case ElementType::float64:
      return expected<Exact<double>>(inputs, op);
    case ElementType::float32:
      return expected<Exact<float>>(inputs, op);
    case ElementType::float16:
      return expected<Float16>(inputs, op);
    case ElementType::bfloat16:
      return expected<BFloat16>(inputs, op);
    case ElementType::int64:
      return expected<Exact<std::int64_t>>(inputs, op);
    case ElementType::int32:
      return expected<Exact<std::int32_t>>(inputs, op);
    case ElementType::int16:
      return expected<Exact<std::int16_t>>(inputs, op);
    case ElementType::int8:
      return expected<Exact<std::int8_t>>(inputs, op);
    case ElementType::uint8:
    case ElementType::boolean:
      return expected<Exact<std::uint8_t>>(inputs, op);
    default:
      throw std::logic_error("no message has elements of this type");
  }
}

// Returns the top 16 bits of a float of each kind: zeros, ones, subnormal, largest, infinite, NaN
// (quiet and signaling), either sign. The bits below are random or zero.
std::uint16_t special(ElementType type, std::mt19937_64& random) {
  const int exponent_bits = type == ElementType::float64   ? 11
                            : type == ElementType::float16 ? 5
                                                           : 8;
  const unsigned infinity = ((1U << exponent_bits) - 1U) << (15 - exponent_bits);
  const unsigned quiet = 1U << (14 - exponent_bits);
  const unsigned magnitudes[] = {
      0, 1, quiet, infinity - 1, infinity, infinity + 1, infinity | quiet, 0x3c00};
  const unsigned sign = random() % 2 == 0 ? 0 : 0x8000U;
  return static_cast<std::uint16_t>(magnitudes[random() % std::size(magnitudes)] | sign);
}

Bytes random_elements(ElementType type, std::size_t count, std::mt19937_64& random) {
  const std::size_t size = size_of(type);
  Bytes bytes(count * size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    if (type == ElementType::boolean) bytes[at] &= std::byte{1};
    if (!is_floating(type) || random() % 3 != 0) continue;
    if (random() % 2 == 0)
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), size, std::byte{0});
    const std::uint16_t top = special(type, random);
    std::memcpy(bytes.data() + at + size - sizeof(top), &top, sizeof(top));
  }
  return bytes;
}

// A buffer that begins `offset` bytes after a line of the cache does. Marks around it show writes
// past its ends.
class Fenced {
 public:
  Fenced(std::size_t bytes, std::size_t offset)
      : bytes_(bytes), memory_(bytes + 3 * kFence, kMark) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = kFence + (kFence - address % kFence) % kFence + offset;
  }

  std::byte* data() { return memory_.data() + begin_; }
  void fill(const Bytes& bytes) { std::copy(bytes.begin(), bytes.end(), data()); }
  bool holds(const Bytes& bytes) { return std::equal(bytes.begin(), bytes.end(), data()); }
  bool is_intact() const {
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto is_mark = [](std::byte byte) { return byte == kMark; };
    return std::all_of(memory_.begin(), begin, is_mark) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), is_mark);
  }

 private:
  static constexpr std::size_t kFence = 64;
  static constexpr std::byte kMark{0xa5};

  std::size_t bytes_;
  Bytes memory_;
  std::size_t begin_ = 0;
};

void reduce_checked(const reduce::Reduction& all) {
  reduce::reduce({all.inputs, all.input_count}, {all.outputs, all.output_count}, all.bytes,
                 all.type, all.op);
}

// True if `reduces` of `inputs`, `offset` bytes into lines of the cache, gives `result`: first in a
// buffer of its own, then in that and in place of all inputs.
bool gives(void (*reduces)(const reduce::Reduction&), const std::vector<Bytes>& inputs,
           const Bytes& result, std::size_t offset, ElementType type, ReduceOp op,
           bool past_caches = false) {
  const std::size_t bytes = result.size();
  std::vector<Fenced> buffers(inputs.size(), Fenced(bytes, offset));
  Fenced apart(bytes, offset);
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to{apart.data()};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    buffers[i] = Fenced(bytes, offset);
    buffers[i].fill(inputs[i]);
    from.push_back(buffers[i].data());
    to.push_back(buffers[i].data());
  }
  const auto count = static_cast<double>(from.size());
  const double scale = mean_scale(std::ssize(from));
  reduce::Reduction reduction{from.data(),
                              from.size(),
                              to.data(),
                              1,
                              bytes,
                              type,
                              op,
                              op == ReduceOp::safe_mean ? scale : 1,
                              op == ReduceOp::mean ? count : count * scale,
                              past_caches};
  reduces(reduction);
  bool right = apart.holds(result);
  for (std::size_t i = 0; i < inputs.size(); ++i) right = right && buffers[i].holds(inputs[i]);
  reduction.output_count = to.size();
  reduces(reduction);
  right = right && apart.holds(result) && apart.is_intact();
  for (Fenced& buffer : buffers) right = right && buffer.holds(result) && buffer.is_intact();
  return right;
}

std::vector<ReduceOp> operations_on(ElementType type) {
  std::vector<ReduceOp> operations{ReduceOp::max, ReduceOp::min};
  if (type != ElementType::boolean) operations.push_back(ReduceOp::sum);
  for (const ReduceOp op : {ReduceOp::mean, ReduceOp::safe_mean, ReduceOp::mean_of_scaled}) {
    if (is_floating(type)) operations.push_back(op);
  }
  return operations;
}

}  // namespace

TEST_CASE("all kernels give the bits of one element at a time", "[bulk]") {
  const std::uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (const ElementType type : kTypes) {
    for (std::size_t replicas = 2; replicas <= 17; ++replicas) {
      for (const std::size_t count : {1, 2, 3, 7, 16, 31, 64, 65, 130, 257}) {
        std::vector<Bytes> inputs(replicas);
        for (Bytes& input : inputs) input = random_elements(type, count, random);
        const std::size_t offset = random() % 8 * size_of(type);
        for (const ReduceOp op : operations_on(type)) {
          const Bytes result = expected(inputs, type, op);
          CAPTURE(name_of(type), name_of(op), replicas, count, offset);
          for (const reduce::ReduceKernels& kernels : reduce::reduce_kernels()) {
            CAPTURE(kernels.name);
            REQUIRE(gives(kernels.reduce, inputs, result, offset, type, op));
            REQUIRE(gives(kernels.reduce, inputs, result, offset, type, op, true));
          }
          REQUIRE(gives(reduce_checked, inputs, result, offset, type, op));
        }
      }
    }
  }
}

TEST_CASE("all kernels count any number of replicas") {
  const std::uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (const std::size_t replicas : {24, 31, 32, 33, 63, 64, 100, 127, 129}) {
    for (const ElementType type : {ElementType::float32, ElementType::bfloat16}) {
      std::vector<Bytes> inputs(replicas);
      for (Bytes& input : inputs) input = random_elements(type, 70, random);
      const Bytes result = expected(inputs, type, ReduceOp::mean);
      CAPTURE(name_of(type), replicas);
      for (const reduce::ReduceKernels& kernels : reduce::reduce_kernels()) {
        CAPTURE(kernels.name);
        REQUIRE(gives(kernels.reduce, inputs, result, 0, type, ReduceOp::mean));
      }
    }
  }
}

TEST_CASE("all kernels convert every half float alike") {
  Bytes all(65536 * 2);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    std::memcpy(all.data() + 2 * i, &bits, 2);
  }
  for (const ElementType type : {ElementType::float16, ElementType::bfloat16}) {
    // The greatest of a value and itself is that value, widened and narrowed; a value plus half the
    // next one's distance goes to the even one.
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::mean}) {
      Bytes next = all;
      if (op == ReduceOp::mean) std::rotate(next.begin(), next.begin() + 2, next.end());
      const std::vector<Bytes> inputs{all, next};
      const Bytes result = expected(inputs, type, op);
      CAPTURE(name_of(type), name_of(op));
      for (const reduce::ReduceKernels& kernels : reduce::reduce_kernels()) {
        CAPTURE(kernels.name);
        CHECK(gives(kernels.reduce, inputs, result, 0, type, op));
      }
    }
  }
}

TEST_CASE("large outputs, which are written past the caches, have the same bits", "[bulk]") {
  std::mt19937_64 random(5);
  const ElementType type = ElementType::int16;
  const std::size_t bytes = (std::size_t{16} << 20) + 154;
  const Bytes few = random_elements(type, 65536 + 77, random);
  Fenced a(bytes, 2);
  Fenced b(bytes, 6);
  for (std::size_t at = 0; at < bytes; ++at) {
    a.data()[at] = few[at % few.size()];
    b.data()[at] = few[(at + 2) % few.size()];
  }
  const std::vector<const std::byte*> inputs{a.data(), b.data()};
  Bytes expected(bytes);
  std::byte* const into = expected.data();
  reduce::reduce_kernels().front().reduce(
      {inputs.data(), 2, &into, 1, bytes, type, ReduceOp::sum, 1, 1, false});
  for (const std::size_t offset : {0, 2, 62}) {
    Fenced output(bytes, offset);
    Fenced other(bytes, 8);
    const std::vector<std::byte*> outputs{output.data(), other.data()};
    reduce::reduce(inputs, {outputs.data(), 1}, bytes, type, ReduceOp::sum);
    CHECK(output.holds(expected));
    reduce::reduce(inputs, outputs, bytes, type, ReduceOp::sum);
    CHECK(output.holds(expected));
    CHECK(output.is_intact());
    CHECK(other.holds(expected));
    CHECK(other.is_intact());
  }
}
