#pragma once

#include <string>

#include <torch/nn/module.h>

namespace lockstep::training {

/// Calls visit(name, each) for `module`, whose name is "", and for all modules in it, under each of
/// their names. Unlike torch::nn::Module::apply() it needs no shared_ptr that owns `module`.
void for_each_module(torch::nn::Module& module, const auto& visit) {
  visit(std::string(), module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    visit(item.key(), *item.value());
  }
}

}  // namespace lockstep::training
