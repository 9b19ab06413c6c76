#pragma once

#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "framework/base/non_copyable.h"

namespace lockstep::training {

/// While this lives, `module` and all in it are in evaluation mode, and this thread records no
/// gradients. Afterwards each module is in its own mode again, also where part of a network stays
/// in evaluation mode while the rest trains, and after an exception. The module must live longer.
/// What its eval() throws is thrown on, with all modes as before; train(), which sets modes back,
/// must not throw, or the program ends.
class EvaluationMode : private NonCopyable {
 public:
  // The destructor runs even if eval() throws, since the constructor that is called first has
  // ended.
  explicit EvaluationMode(torch::nn::Module& module) : EvaluationMode() {
    modes_.emplace_back(&module, module.is_training());
    for (const auto& each : module.modules(/*include_self=*/false)) {
      modes_.emplace_back(each.get(), each->is_training());
    }
    module.eval();
  }
  ~EvaluationMode() {
    // A module sets those in it, too; these come after it, each as often as it is registered.
    for (const auto& [module, was_training] : modes_) {
      if (module->is_training() != was_training) module->train(was_training);
    }
  }

 private:
  EvaluationMode() = default;

  c10::AutoGradMode no_grad_{false};
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
};

}  // namespace lockstep::training
