#include "framework/training/sharded_optimizer.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/training/agreement.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/module_parameters.h"
#include "framework/tree/flat_layout.h"

namespace lockstep {
namespace {

// The group of each parameter: the replica that owns it, counted from 1.
std::vector<std::int64_t> groups_of(const std::vector<at::Tensor>& parameters,
                                    std::int64_t replicas) {
  std::vector<std::size_t> by_size(parameters.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
    return parameters[a].numel() > parameters[b].numel();
  });
  std::vector<std::int64_t> load(static_cast<std::size_t>(replicas), 0);
  std::vector<std::int64_t> groups(parameters.size());
  for (const std::size_t index : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    groups[index] = least - load.begin() + 1;
    *least += parameters[index].numel();
  }
  return groups;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const std::vector<at::Tensor>& parameters, const Make& make,
                                   const AxisNames& axis_name, std::source_location where)
    : axis_(axis_name) {
  const AxisCall call{"ShardedOptimizer", axis_, where};
  const CalledFrom scope(call);
  const auto leaves = training::leaf_parameters(parameters);
  const auto& names = leaves.names;
  const auto& tensors = leaves.tensors;
  claims_ = std::make_unique<training::ParameterClaims>(
      "ShardedOptimizer", std::vector{training::ParameterPart::values}, names, tensors);
  training::check_same_model(names, tensors, axis_);
  training::start_alike(tensors, axis_);
  const auto groups = groups_of(tensors, axis_size(axis_));  // a bucket for each, and dtype
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  parameters_ = std::make_unique<training::FlatParameters>(
      names, tensors, tree::FlatLayout(training::flat_items(tensors, groups), order, 1, 1), axis_,
      training::ParameterUpdates::own_group);
  std::vector<at::Tensor> own;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (groups[i] == axis_index(axis_) + 1) own.push_back(tensors[i]);
  }
  if (!own.empty()) optimizer_ = make(std::move(own));
}

ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::step(std::source_location where) {
  const AxisCall call{"ShardedOptimizer::step", axis_, where};
  const CalledFrom scope(call);
  const c10::AutoGradMode no_grad(false);
  // After this exchange no replica reads the old parameters any more.
  const at::Tensor replaced = at::full({1}, parameters_->check(call) ? 1 : 0, at::kLong);
  psum_(replaced, axis_);
  if (replaced.item<std::int64_t>() != 0) (void)parameters_->adopt(call);
  if (optimizer_) optimizer_->step();
  parameters_->publish();
}

void ShardedOptimizer::edit_parameters(const std::function<void()>& write,
                                       std::source_location where) {
  const AxisCall call{"ShardedOptimizer::edit_parameters", axis_, where};
  (void)parameters_->check(call);
  (void)parameters_->edit(write, call);
}

}  // namespace lockstep
