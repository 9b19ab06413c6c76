#include "models/layers.h"

#include <functional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "models/model.h"

namespace lockstep {

namespace {

// What `make` makes, now or later.
at::Tensor now_or_deferred(const std::vector<std::int64_t>& sizes,
                           std::function<at::Tensor()> make) {
  DeferredValues* const deferred = DeferredValues::current();
  return deferred == nullptr ? make() : deferred->deferred(sizes, std::move(make));
}

}  // namespace

at::Tensor uniform(const std::vector<std::int64_t>& sizes, double bound, const Key& key) {
  return now_or_deferred(sizes, [=] {
    return at::empty(sizes, at::kFloat)
        .uniform_(-bound, bound, at::detail::createCPUGenerator(key.bits()));
  });
}

at::Tensor normal(const std::vector<std::int64_t>& sizes, double mean, double deviation,
                  const Key& key) {
  return now_or_deferred(sizes, [=] {
    return at::empty(sizes, at::kFloat)
        .normal_(mean, deviation, at::detail::createCPUGenerator(key.bits()));
  });
}

at::Tensor constant(const std::vector<std::int64_t>& sizes, double value) {
  return now_or_deferred(sizes, [=] { return at::empty(sizes, at::kFloat).fill_(value); });
}

void check_inputs(std::string_view model, const at::Tensor& inputs, std::int64_t features) {
  if (inputs.dim() == 2 && inputs.size(1) == features) return;
  throw ValueError(str("model ", model, ": inputs must be (samples, ", features, "), not (",
                       join(inputs.sizes()), ")"));
}

}  // namespace lockstep
