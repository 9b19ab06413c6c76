#include "tests/collectives/property_program.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"

namespace lockstep::testing {
namespace {

AxisNames names_of(const World& world) {
  std::vector<std::string> names;
  for (const NamedAxis& axis : world.axes) names.push_back(axis.name);
  return names;
}

}  // namespace

Program::Program(const Key& key, const World& world)
    : replicas_(world.size()),
      axes_(names_of(world)),
      order_(permutation(key.fold("order"), world.size())) {
  Draw draw(key.fold("operations"));
  for (std::int64_t count = draw.between(2, 5); count > 0; --count) {
    operations_.push_back(draw.between(0, 9));
  }
  const auto generator = at::detail::createCPUGenerator(draw.bits());
  const auto type = draw.coin() ? at::kFloat : at::kDouble;
  parameters_["w"] = at::randn({3}, generator, type);
  parameters_["b"] = at::randn({replicas_, 1}, generator, type);
  samples_ = at::randn({replicas_, replicas_, 3}, generator, type);
}

// Keeps the shape (replicas, 3).
at::Tensor Program::apply(std::int64_t operation, const at::Tensor& x) const {
  switch (operation) {
    case 0:
      return psum(x, axes_);
    case 1:
      return pmean(x, axes_);
    case 2:
      return pmax(x, axes_);
    case 3:
      return pmin(x, axes_);
    case 4:
      return all_gather(x, axes_, {.axis = -1}).mean(-1);
    case 5:
      return all_gather(psum_scatter(x, axes_), axes_);
    case 6:
      return all_to_all(x, axes_, 0, -2, {.tiled = true});
    case 7:
      return pswapaxes(x, axes_, 0);
    case 8:
      return pshuffle(x, axes_, order_) + pbroadcast(x, axes_, order_[0]);
    default:
      return x + ppermute(x, axes_, {{order_[0], order_.back()}});
  }
}

at::Tensor Program::loss(const Parameters& parameters, const at::Tensor& sample) const {
  at::Tensor x = sample * parameters.at("w") + parameters.at("b");
  for (const std::int64_t operation : operations_) {
    x = (apply(operation, x) * parameters.at("w")).tanh();
  }
  return (x * x).sum();
}

Program::Result Program::step(const Parameters& parameters, const at::Tensor& sample) const {
  const auto [value, gradients] =
      value_and_grad([&](const Parameters& own) { return loss(own, sample); })(parameters);
  return {value, gradients};
}

std::uint64_t Program::run(std::int64_t replica) const {
  return digest_of(tree_leaves(step(parameters_, samples_[replica])));
}

}  // namespace lockstep::testing
