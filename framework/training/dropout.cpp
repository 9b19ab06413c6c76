#include "framework/training/dropout.h"

#include <cmath>
#include <cstdint>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "framework/base/text.h"

namespace lockstep {

void training::check_probability(const char* what, double p) {
  require(p >= 0 && p <= 1, what, ": p must be in [0, 1], not ", p);
}

at::Tensor dropout(const at::Tensor& input, double p, const Key& key) {
  training::check_probability("dropout", p);
  require(input.is_floating_point(), "dropout: the input must be floating, not ",
          input.scalar_type());
  if (p == 0) return input;
  const at::Tensor factors = at::empty(input.sizes(), input.options().requires_grad(false));
  if (p == 1) return input * factors.zero_();
  constexpr std::int64_t kElementsAtOnce = 32'768;
  const auto threshold = static_cast<std::uint64_t>(std::ldexp(p, 64));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "dropout", [&] {
    auto* const values = factors.data_ptr<scalar_t>();
    const auto kept = at::Scalar(1 / (1 - p)).to<scalar_t>();
    at::parallel_for(0, factors.numel(), kElementsAtOnce,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const bool keeps = key.draw(static_cast<std::uint64_t>(i)) >= threshold;
                         values[i] = keeps ? kept : scalar_t(0);
                       }
                     });
  });
  return input * factors;
}

DropoutImpl::DropoutImpl(double p)
    : KeyedModule("dropout", "lockstep::Dropout", "use lockstep::dropout(input, p, key)"), p_(p) {
  training::check_probability("dropout", p);
}

}  // namespace lockstep
