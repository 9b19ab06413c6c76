#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/random.h"

namespace lockstep {

struct NormalOptions {
  at::ScalarType dtype = at::kFloat;
};

struct UniformOptions {
  at::ScalarType dtype = at::kFloat;
  double minval = 0;
  double maxval = 1;
};

/// Returns a tensor of standard normal numbers on the CPU, a pure function of its arguments: the
/// same bits in any replica, thread, process or host, whatever else is drawn. As jax.random.normal,
/// with bits of its own instead of threefry's: element i, row-major, is key.normal(i) in the dtype.
/// A key that is to give several tensors is folded for each.
///
///   const Tensor noise = normal(Key(7).fold(axis_index("i")), {2, 3});
///
/// Throws ValueError for a negative size or a dtype that is not floating.
[[nodiscard]] at::Tensor normal(const Key& key, const std::vector<std::int64_t>& shape = {},
                                const NormalOptions& options = {});

/// As normal(), with numbers uniform in [minval, maxval): jax.random.uniform. Element i is minval +
/// u (maxval - minval), where u is key.uniform(i, bits) with as many bits as the dtype's
/// significand has; rounding it to the dtype may give maxval unless minval is 0 and maxval 1.
/// Throws ValueError too unless minval is below maxval and both are finite.
[[nodiscard]] at::Tensor uniform(const Key& key, const std::vector<std::int64_t>& shape = {},
                                 const UniformOptions& options = {});

}  // namespace lockstep
