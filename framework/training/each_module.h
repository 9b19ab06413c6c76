#pragma once

#include <string>
#include <unordered_set>

#include <torch/nn/module.h>

namespace lockstep::training {

/// Calls visit(name, each) for `module`, whose name is "", and for all modules in it, each once and
/// by its first name. Unlike torch::nn::Module::apply() it needs no shared_ptr that owns `module`.
void for_each_module(torch::nn::Module& module, const auto& visit) {
  visit(std::string(), module);
  std::unordered_set<const torch::nn::Module*> seen;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (seen.insert(item.value().get()).second) visit(item.key(), *item.value());
  }
}

}  // namespace lockstep::training
