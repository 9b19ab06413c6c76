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
  explicit ModuleModes(torch::nn::Module& module)
      : modes_{{"the model", {std::shared_ptr<void>(), &module}, module.is_training()}} {
    for (const auto& item : module.named_modules("", /*include_self=*/false)) {
      modes_.push_back({"'" + item.key() + "'", item.value(), item.value()->is_training()});
    }
    for (const auto& item : module.named_parameters()) {
      flags_.push_back({"'" + item.key() + "'", item.value(), item.value().requires_grad()});
    }
  }

  /// Returns the first change, "'drop' in evaluation mode", or kLeft; "" if there is none.
  [[nodiscard]] std::string change() const {
    for (const auto& [name, module, was_training] : modes_) {
      if (module->is_training() == was_training) continue;
      return name + " in " + (was_training ? "evaluation mode" : "training mode");
    }
    for (const auto& [name, parameter, had_flag] : flags_) {
      if (parameter.requires_grad() != had_flag)
        return name + (had_flag ? " without" : " with") + " requires_grad";
    }
    return "";
  }
  /// Sets all back. train(), which does so, must not throw.
  void restore() const {
    // A module sets those in it, too; these come after it, each as often as it is registered.
    for (const auto& [name, module, was_training] : modes_) {
      if (module->is_training() != was_training) module->train(was_training);
    }
    for (const auto& [name, parameter, had_flag] : flags_) {
      if (parameter.requires_grad() != had_flag) parameter.requires_grad_(had_flag);
    }
  }

  static constexpr const char* kLeft = "the model in evaluation mode";

 private:
  struct Mode {
    std::string name;
    std::shared_ptr<torch::nn::Module> module;
    bool was_training;
  };
  struct Flag {
    std::string name;
    at::Tensor parameter;
    bool had_flag;
  };
  std::vector<Mode> modes_;
  std::vector<Flag> flags_;
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
