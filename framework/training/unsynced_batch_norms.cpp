#include "framework/training/unsynced_batch_norms.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"

namespace lockstep::training {
namespace {

bool is_local(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr;
}

}  // namespace

UnsyncedBatchNorms::UnsyncedBatchNorms(torch::nn::Module* module, const AxisNames& axis_name,
                                       bool are_wanted) {
  if (module == nullptr || are_wanted || axis_size(axis_name) == 1) return;
  if (is_local(*module)) {
    // The module itself outlives its trainer.
    found_.emplace_back("the module",
                        std::shared_ptr<const torch::nn::Module>(std::shared_ptr<void>(), module));
  }
  for (const auto& item : module->named_modules("", /*include_self=*/false)) {
    if (is_local(*item.value())) found_.emplace_back("'" + item.key() + "'", item.value());
  }
}

void UnsyncedBatchNorms::check(const AxisCall& call) const {
  std::vector<std::string> names;
  for (const auto& [name, module] : found_) {
    if (module->is_training()) names.push_back(name);
  }
  call.require(
      names.empty(), listed(names), names.size() == 1 ? " is a" : " are",
      " torch::nn::BatchNorm in training mode, which normalizes by each replica's own "
      "samples: use lockstep::BatchNorm, or the option local_batch_norm if that is wanted");
}

}  // namespace lockstep::training
