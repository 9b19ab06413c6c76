#include "framework/training/sharded_optimizer.h"

#include <algorithm>
#include <utility>

#include <torch/optim/optimizer.h>

#include "framework/base/range.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/agreement.h"
#include "framework/training/buffer_plan.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/module_parameters.h"
#include "framework/training/random_draws.h"
#include "framework/training/safe_convolutions.h"
#include "framework/training/torch_optimizer_state.h"
#include "framework/training/trainer_call.h"
#include "framework/tree/flat_layout.h"

namespace lockstep {
namespace {

// The group of each parameter: the replica that owns it, counted from 1.
std::vector<std::int64_t> groups_of(const std::vector<at::Tensor>& parameters,
                                    std::int64_t replicas) {
  std::vector<std::size_t> by_size = consecutive(std::size_t{0}, parameters.size());
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

ShardedOptimizer::ShardedOptimizer(const training::ModuleParameters& leaves, const Make& make,
                                   const AxisNames& axis_name, std::source_location where)
    : axis_(axis_name),
      names_(leaves.names),
      tensors_(leaves.tensors),
      owners_(groups_of(tensors_, axis_size(axis_))) {
  training::keep_convolutions_safe();
  const AxisCall call{"ShardedOptimizer", axis_, where};
  const CalledFrom scope(call);
  claims_ = std::make_unique<training::ParameterClaims>(
      "ShardedOptimizer", std::vector{training::ParameterClaim::values}, names_, tensors_);
  training::check_values("ShardedOptimizer", leaves);
  training::check_same_model(names_, tensors_, axis_);
  training::check_initialization("ShardedOptimizer", names_, tensors_, Randomness::warn, axis_);
  training::start_alike(tensors_, axis_);
  // A bucket for each owner, and dtype.
  const std::vector<std::size_t> order = consecutive(std::size_t{0}, tensors_.size());
  parameters_ = std::make_unique<training::FlatParameters>(
      names_, tensors_,
      training::BufferPlan({training::flat_items(tensors_, owners_), order, 1, 1},
                           {.updates = training::ParameterUpdates::own_group}, axis_index(axis_),
                           /*overlaps=*/false),
      axis_);
  std::vector<at::Tensor> own;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (is_own(i)) own.push_back(tensors_[i]);
  }
  if (!own.empty()) optimizer_ = make(std::move(own));
}

ShardedOptimizer::ShardedOptimizer(const std::vector<at::Tensor>& parameters, const Make& make,
                                   const AxisNames& axis_name, std::source_location where)
    : ShardedOptimizer(training::leaf_parameters(parameters), make, axis_name, where) {}

ShardedOptimizer::ShardedOptimizer(torch::nn::Module& module, const Make& make,
                                   const AxisNames& axis_name, std::source_location where)
    : ShardedOptimizer(training::module_parameters(module), make, axis_name, where) {}

ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::step(std::source_location where) {
  const training::TrainerCall call({"ShardedOptimizer::step", axis_, where});
  // After this exchange no replica reads the old parameters any more.
  (void)parameters_->adopt_replaced(call);
  if (optimizer_) optimizer_->step();
  parameters_->publish();
}

void ShardedOptimizer::archive_state(const training::StateArchive& archive,
                                     std::source_location where) {
  const training::TrainerCall call(
      {archive.restores() ? "ShardedOptimizer::restore_state" : "ShardedOptimizer::visit_state",
       axis_, where});
  (void)parameters_->adopt_replaced(call);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!is_own(i)) continue;
    archive.whole(training::kParameters + names_[i], tensors_[i]);
    training::archive_torch_state(*optimizer_, tensors_[i], names_[i], archive);
  }
  if (archive.restores()) parameters_->publish();
}

bool ShardedOptimizer::is_own(std::size_t index) const {
  return owners_[index] == axis_index(axis_) + 1;
}

void ShardedOptimizer::edit_parameters(const std::function<void()>& write,
                                       std::source_location where) {
  const AxisCall call{"ShardedOptimizer::edit_parameters", axis_, where};
  (void)parameters_->check(call);
  (void)parameters_->edit(write, call);
}

}  // namespace lockstep
