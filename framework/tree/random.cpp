#include "framework/tree/random.h"

#include <cmath>
#include <limits>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/TypeCast.h>

#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kElementsAtOnce = 8'192;

// Returns a tensor whose element i is number_at(i, bits of the dtype's significand).
template <typename Number>
at::Tensor drawn(const char* name, const std::vector<std::int64_t>& shape, at::ScalarType dtype,
                 const Number& number_at) {
  require(at::isFloatingType(dtype), name, ": the dtype must be floating, not ", dtype);
  for (const std::int64_t size : shape) {
    require(size >= 0, name, ": the shape [", join(shape), "] has a negative size");
  }
  const at::Tensor tensor = at::empty(shape, dtype);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "a draw by a key", [&] {
    constexpr int bits = std::numeric_limits<scalar_t>::digits;
    auto* const values = tensor.data_ptr<scalar_t>();
    at::parallel_for(0, tensor.numel(), kElementsAtOnce, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double number = number_at(static_cast<std::uint64_t>(i), bits);
        values[i] = c10::convert<scalar_t>(number);
      }
    });
  });
  return tensor;
}

}  // namespace

at::Tensor normal(const Key& key, const std::vector<std::int64_t>& shape,
                  const NormalOptions& options) {
  return drawn("normal", shape, options.dtype,
               [&](std::uint64_t index, int) { return key.normal(index); });
}

at::Tensor uniform(const Key& key, const std::vector<std::int64_t>& shape,
                   const UniformOptions& options) {
  const double range = options.maxval - options.minval;
  require(range > 0 && std::isfinite(range), "uniform: minval ", options.minval,
          " must be below maxval ", options.maxval, ", and both finite");
  return drawn("uniform", shape, options.dtype, [&](std::uint64_t index, int bits) {
    return options.minval + range * key.uniform(index, bits);
  });
}

}  // namespace lockstep
