#include "framework/training/module_parameters.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include "framework/base/text.h"
#include "framework/training/block.h"

namespace lockstep {

void check_parameter(const std::string& name, const at::Tensor& parameter) {
  require(parameter.is_floating_point() && parameter.layout() == at::kStrided &&
              (parameter.device().is_cpu() || parameter.is_meta()) && parameter.is_leaf(),
          "parameter '", name, "' must be a dense leaf tensor of a real floating dtype on the CPU");
}

namespace {

void check_writes_nothing(const std::string& name, const torch::nn::Module& module) {
  const auto* const embedding = module.as<torch::nn::Embedding>();
  const auto* const bag = module.as<torch::nn::EmbeddingBag>();
  require(!(embedding != nullptr && embedding->options.max_norm()) &&
              !(bag != nullptr && bag->options.max_norm()),
          "module '", name,
          "' is an embedding with max_norm, whose forward writes its weights: leave max_norm out, "
          "and limit the norms in edit_parameters()");
}

}  // namespace

void check_dense(const at::Tensor& gradient, const std::string& name, const AxisCall& call) {
  call.require(gradient.layout() == at::kStrided, "parameter '", name,
               "' has a gradient that is not dense: use dense ones");
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
  call.require(loss.requires_grad(), "the loss does not depend on any parameter");
}

ModuleParameters module_parameters(torch::nn::Module& module) {
  ModuleParameters found;
  found.module = &module;
  found.count = module.parameters().size();
  std::unordered_map<const void*, Block*> block_of;  // by tensor; nullptr: of several
  std::unordered_set<const Block*> blocks;
  std::vector<torch::nn::Module*> modules{&module};
  for (const auto& each : module.modules(/*include_self=*/false)) modules.push_back(each.get());
  for (torch::nn::Module* const each : modules) {
    auto* const block = dynamic_cast<Block*>(each);
    // One may be registered under several names.
    if (block == nullptr || !blocks.insert(block).second) continue;
    for (const auto& inner : block->modules(/*include_self=*/false)) {
      require(dynamic_cast<Block*>(inner.get()) == nullptr, "a Block must not be inside another");
    }
    for (const at::Tensor& parameter : block->parameters()) {
      Block*& owner = block_of.emplace(parameter.unsafeGetTensorImpl(), block).first->second;
      if (owner != block) owner = nullptr;
    }
  }
  check_writes_nothing("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    check_writes_nothing(item.key(), *item.value());
  }
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

std::vector<FlatItem> flat_items(const std::vector<at::Tensor>& tensors,
                                 const std::vector<std::int64_t>& groups) {
  std::vector<FlatItem> items;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    items.push_back({tensors[i].numel(), tensors[i].scalar_type(), groups[i]});
  }
  return items;
}

FlatLayout flat_layout(const ModuleParameters& parameters, std::vector<std::size_t> order,
                       double bucket_mb, std::int64_t shards, bool cuts) {
  const std::vector<std::int64_t> uncut(parameters.tensors.size(), 0);
  const std::vector<std::int64_t>& groups = cuts ? parameters.block_of : uncut;
  std::ranges::stable_partition(order, [&](std::size_t item) { return groups[item] != 0; });
  const auto bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(bucket_mb * 1024 * 1024));
  return {flat_items(parameters.tensors, groups), order, bytes, shards};
}

}  // namespace lockstep
