#include "framework/training/stochastic_depth.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include "framework/base/text.h"
#include "framework/training/dropout.h"

namespace lockstep {

at::Tensor stochastic_depth(const at::Tensor& input, double p, const Key& key) {
  training::check_probability("stochastic_depth", p);
  require(input.is_floating_point() && input.dim() > 0,
          "stochastic_depth: the input must be floating and have rows, not ", input.scalar_type(),
          " of ", input.dim(), " dimensions");
  if (p == 0) return input;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
  sizes[0] = input.size(0);
  const at::Tensor factors = dropout(at::ones(sizes, at::kDouble), p, key);
  return input * factors.to(input.scalar_type());
}

StochasticDepthImpl::StochasticDepthImpl(double p)
    : KeyedModule("stochastic_depth", "lockstep::StochasticDepth",
                  "use lockstep::stochastic_depth(input, p, key)"),
      p_(p) {
  training::check_probability("stochastic_depth", p);
}

void StochasticDepthImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::StochasticDepth(p=" << p_ << ")";
}

}  // namespace lockstep
