#include "framework/training/module_parameters.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <ATen/ops/zeros.h>
#include <torch/nn/modules/embedding.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/mutex.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/training/block.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/each_module.h"

namespace lockstep::training {
namespace {

void check_writes_nothing(const std::string& name, const torch::nn::Module& module) {
  const auto writes = [](const auto* each) { return each != nullptr && each->options.max_norm(); };
  require(
      !writes(module.as<torch::nn::Embedding>()) && !writes(module.as<torch::nn::EmbeddingBag>()),
      "module '", name,
      "' is an embedding with max_norm, whose forward writes its weights: leave max_norm out, "
      "and limit the norms in edit_parameters()");
}

struct Owners {
  Mutex mutex;
  std::map<std::pair<const void*, ParameterClaim>, const char*> of LOCKSTEP_GUARDED_BY(mutex);
};

Owners& owners() {
  static Owners all;
  return all;
}

}  // namespace

void check_parameter(const std::string& name, const at::Tensor& parameter) {
  require(parameter.is_floating_point() && parameter.layout() == at::kStrided &&
              (parameter.device().is_cpu() || parameter.is_meta()) && parameter.is_leaf(),
          "parameter '", name, "' must be a dense leaf tensor of a real floating dtype on the CPU");
}

void check_values(const char* owner, const ModuleParameters& parameters) {
  for (std::size_t i = 0; i < parameters.all.size(); ++i) {
    require(!parameters.all[i].is_meta(), owner, ": parameter '", parameters.all_names[i],
            "' is on the meta device and has no values: give it some, or take ZeroTrainer with "
            "ZeroOptions::initialize");
  }
}

bool lacks_memory(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.has_storage() && tensor.numel() > 0 &&
         tensor.storage().data() == nullptr;
}

void check_still_all(const ModuleParameters& parameters, const AxisCall& call) {
  for (std::size_t i = 0; i < parameters.all.size(); ++i) {
    call.require(!parameters.is_frozen[i] || !parameters.all[i].requires_grad(), "parameter '",
                 parameters.all_names[i],
                 "' required no gradient when its trainer was made, and does now: make a new "
                 "trainer");
  }
  if (parameters.module == nullptr || parameters.module->parameters().size() == parameters.count) {
    return;
  }
  for (const auto& item : parameters.module->named_parameters()) {
    call.require(parameters.by_name.contains(item.key()) || !item.value().requires_grad(),
                 "parameter '", item.key(),
                 "' was registered after its trainer was made: make a new trainer");
  }
}

void check_loss(const at::Tensor& loss, const AxisCall& call) {
  if (!loss.defined()) return;
  call.require(loss.numel() == 1, "the loss has ", loss.numel(), " elements; it must have one");
  call.require(!loss.is_meta(),
               "the loss depends on parameters of a Block that were not there: call the Block "
               "itself, or hold whole_parameters()");
  call.require(loss.requires_grad() || c10::GradMode::is_enabled(),
               "GradMode is off, by a NoGradGuard or set_enabled(false): nothing has a gradient");
  call.require(loss.requires_grad(), "the loss does not depend on any parameter");
}

ModuleParameters module_parameters(torch::nn::Module& module) {
  ModuleParameters found;
  found.module = &module;
  found.count = module.parameters().size();
  std::unordered_map<const void*, Block*> block_of;  // by tensor; nullptr: of several
  for_each_module(module, [&](const std::string&, torch::nn::Module& each) {
    auto* const block = dynamic_cast<Block*>(&each);
    if (block == nullptr) return;
    for (const auto& inner : block->modules(/*include_self=*/false)) {
      require(dynamic_cast<Block*>(inner.get()) == nullptr, "a Block must not be inside another");
    }
    for (const at::Tensor& parameter : block->parameters()) {
      Block*& owner = block_of.emplace(parameter.unsafeGetTensorImpl(), block).first->second;
      if (owner != block) owner = nullptr;
    }
  });
  for_each_module(module, check_writes_nothing);
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.defined()) continue;
    found.by_name.emplace(item.key(), parameter);
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    found.all_names.push_back(item.key());
    found.all.push_back(parameter);
    found.is_frozen.push_back(!parameter.requires_grad());
    if (!parameter.requires_grad()) continue;
    check_parameter(item.key(), parameter);
    found.names.push_back(item.key());
    found.tensors.push_back(parameter);
    Block* const block = block_of[parameter.unsafeGetTensorImpl()];
    const auto place = std::ranges::find(found.blocks, block) - found.blocks.begin();
    found.block_of.push_back(block == nullptr ? 0 : place + 1);
    if (block != nullptr && place == std::ssize(found.blocks)) found.blocks.push_back(block);
  }
  require(!found.tensors.empty(), "the module has no parameter that requires a gradient");
  return found;
}

ModuleParameters leaf_parameters(const std::vector<at::Tensor>& tensors) {
  ModuleParameters found;
  std::unordered_set<const void*> seen;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    found.names.push_back(lockstep::str("leaf ", found.names.size()));
    found.tensors.push_back(tensor);
    check_parameter(found.names.back(), tensor);
  }
  found.all_names = found.names;
  found.all = found.tensors;
  found.is_frozen.assign(found.all.size(), false);
  return found;
}

std::vector<tree::FlatItem> flat_items(const std::vector<at::Tensor>& tensors,
                                       const std::vector<std::int64_t>& groups) {
  std::vector<tree::FlatItem> items;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    items.push_back({tensors[i].numel(), tensors[i].scalar_type(), groups[i]});
  }
  return items;
}

tree::FlatLayout flat_layout(const ModuleParameters& parameters, std::vector<std::size_t> order,
                             std::optional<double> bucket_mb, const std::optional<LinkCost>& link,
                             std::int64_t shards, bool cuts) {
  const std::vector<std::int64_t> uncut(parameters.tensors.size(), 0);
  const std::vector<std::int64_t>& groups = cuts ? parameters.block_of : uncut;
  std::ranges::stable_partition(order, [&](std::size_t item) { return groups[item] != 0; });
  return {flat_items(parameters.tensors, groups), order,
          bucket_sizes(bucket_mb, total_bytes(parameters.tensors), shards, link), shards};
}

ParameterClaims::ParameterClaims(const char* owner, const std::vector<ParameterClaim>& claims,
                                 const std::vector<std::string>& names,
                                 std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  Owners& all = owners();
  const MutexLock lock(all.mutex);
  for (const ParameterClaim claim : claims) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      claimed_.emplace_back(parameters_[i].unsafeGetTensorImpl(), claim);
      const auto found = all.of.find(claimed_.back());
      if (found == all.of.end()) continue;
      throw ValueError(lockstep::str(
          owner, ": parameter '", names[i], "' belongs to a ", found->second,
          " that is still alive: end that one first; and each replica needs a module of its own"));
    }
  }
  for (const auto& each : claimed_) all.of.emplace(each, owner);
}

ParameterClaims::~ParameterClaims() {
  Owners& all = owners();
  const MutexLock lock(all.mutex);
  for (const auto& each : claimed_) all.of.erase(each);
}

bool is_claimed(const at::Tensor& parameter, ParameterClaim claim) {
  Owners& all = owners();
  const MutexLock lock(all.mutex);
  return all.of.contains({parameter.unsafeGetTensorImpl(), claim});
}

void UnusedParameters::add(const std::vector<std::size_t>& indices) {
  const std::set<std::size_t> now(indices.begin(), indices.end());
  if (!unused_) {
    unused_ = now;
    return;
  }
  std::erase_if(*unused_, [&](std::size_t index) { return !now.contains(index); });
}

std::vector<bool> UnusedParameters::agree(const std::vector<std::string>& names,
                                          const AxisNames& axis_name) {
  at::Tensor replicas = at::zeros({static_cast<std::int64_t>(names.size())}, at::kInt);
  std::int32_t* const counts = replicas.data_ptr<std::int32_t>();
  for (std::size_t i = 0; i < names.size(); ++i) {
    counts[i] = !unused_ || unused_->contains(i) ? 1 : 0;
  }
  psum_(replicas, axis_name);
  const std::int64_t all = axis_size(axis_name);
  std::vector<bool> on_all(names.size());
  std::vector<std::string> nowhere;
  std::vector<std::string> somewhere;
  for (std::size_t i = 0; i < names.size(); ++i) {
    on_all[i] = counts[i] == all;
    if (counts[i] == 0 || !told_.insert(i).second) continue;
    std::string text = str("'", names[i], "'");
    if (!on_all[i]) text += str(" (on ", counts[i], " of ", all, " replicas)");
    (on_all[i] ? nowhere : somewhere).push_back(std::move(text));
  }
  if (axis_index(axis_name) != 0) return on_all;
  if (!nowhere.empty()) {
    log_warning(str("the loss does not depend on ", listed(nowhere), ": the optimizer leaves ",
                    nowhere.size() == 1 ? "it" : "them", " as is (said once)"));
  }
  if (!somewhere.empty()) {
    log_warning(str("the loss does not depend on ", listed(somewhere),
                    ": a gradient of zeros there (said once)"));
  }
  return on_all;
}

}  // namespace lockstep::training
