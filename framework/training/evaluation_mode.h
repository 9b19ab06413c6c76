#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "framework/base/non_copyable.h"

namespace lockstep::training {

/// The modes of a module and all in it, and which parameters require a gradient, as they were when
/// this was made. The module must live longer.
class ModuleModes {
 public:
  static constexpr const char* kLeft = "the model in evaluation mode";

  explicit ModuleModes(torch::nn::Module& module)
      : kept_{{"the model", {std::shared_ptr<void>(), &module}}} {
    for (const auto& item : module.named_modules("", /*include_self=*/false)) {
      kept_.push_back({"'" + item.key() + "'", item.value()});
    }
    for (const auto& item : module.named_parameters()) {
      kept_.push_back({"'" + item.key() + "'", nullptr, item.value()});
    }
    for (Kept& each : kept_) each.was = each.is();
  }

  /// Returns the first change, "'drop' in evaluation mode", or kLeft; "" if there is none.
  [[nodiscard]] std::string change() const {
    for (const Kept& each : kept_) {
      if (each.is() == each.was) continue;
      if (each.module) return each.name + (each.was ? " in evaluation mode" : " in training mode");
      return each.name + (each.was ? " without requires_grad" : " with requires_grad");
    }
    return "";
  }
  /// Sets all back. train(), which does so, must not throw.
  void restore() const {
    // A module sets those in it, too; these come after it, each as often as it is registered.
    for (const Kept& each : kept_) {
      if (each.is() == each.was) continue;
      each.module ? each.module->train(each.was) : void(each.parameter.requires_grad_(each.was));
    }
  }

 private:
  struct Kept {
    std::string name;
    std::shared_ptr<torch::nn::Module> module;
    at::Tensor parameter{};  // if there is no module
    bool was = false;        // training, or requiring a gradient
    [[nodiscard]] bool is() const {
      return module ? module->is_training() : parameter.requires_grad();
    }
  };
  std::vector<Kept> kept_;
};

/// While this lives, `module` and all in it are in evaluation mode, and this thread records no
/// gradients. Afterwards each module is in its own mode again, also where part of a network stays
/// in evaluation mode while the rest trains, and after an exception. The module must live longer.
/// What its eval() throws is thrown on, with all modes as before; train(), which sets modes back,
/// must not throw, or the program ends.
class EvaluationMode : private NonCopyable {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : EvaluationMode(ModuleModes(module)) {
    module.eval();
  }
  ~EvaluationMode() { modes_.restore(); }

 private:
  // The destructor runs even if eval() throws, since this constructor has ended.
  explicit EvaluationMode(ModuleModes modes) : modes_(std::move(modes)) {}

  c10::AutoGradMode no_grad_{false};
  ModuleModes modes_;
};

}  // namespace lockstep::training
