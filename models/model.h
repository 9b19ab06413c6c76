#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "models/model_options.h"

namespace lockstep {

/// A network: a torch::nn::Module with a forward of its own. Its randomness comes from keys
/// (framework/base/random.h), never from LibTorch's process-wide generator.
class Model : public torch::nn::Module {
 public:
  /// The outputs (samples, outputs) for `inputs` (samples, features). Throws ValueError for inputs
  /// of another shape.
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  /// The first values of parameter `name`, float32, with the bits that make_model gives it. For a
  /// model that make_model made under DeferredValues: this makes it piece by piece, for
  /// ZeroOptions::initialize. ValueError for another model, and for a name that it does not have.
  [[nodiscard]] at::Tensor initial_value(const std::string& name) const;

 private:
  friend class DeferredValues;
  std::map<std::string, std::function<at::Tensor()>> initial_values_;
};

/// The model that `options` name, its parameters float32. They depend on the options, `features`,
/// `outputs` and `seed` alone; any threads may make models at once. Throws ValueError for an
/// unknown name and for sizes below 1.
[[nodiscard]] std::shared_ptr<Model> make_model(const ModelOptions& options, std::int64_t features,
                                                std::int64_t outputs, std::uint64_t seed);

/// While this lives, models that this thread makes have parameters on the meta device, without
/// values or memory: for looking at their shapes, and for a ZeroTrainer that makes the values
/// (Model::initial_value()).
class DeferredValues {
 public:
  DeferredValues();
  ~DeferredValues();
  DeferredValues(const DeferredValues&) = delete;
  DeferredValues& operator=(const DeferredValues&) = delete;

  /// The innermost that lives in this thread; nullptr: none.
  [[nodiscard]] static DeferredValues* current() noexcept;
  /// A parameter whose values `make` makes.
  [[nodiscard]] at::Tensor deferred(const std::vector<std::int64_t>& sizes,
                                    std::function<at::Tensor()> make);
  /// Gives a new model what makes its parameters' values.
  void hand_over(Model& model);

 private:
  struct Made {
    at::Tensor parameter;
    std::function<at::Tensor()> make;
  };
  std::vector<Made> made_;  // of the model that is being made
  DeferredValues* outer_;
};

/// model.forward(inputs) for float32 `inputs`, computed in the dtype of the model's parameters. The
/// result is float32.
[[nodiscard]] at::Tensor outputs_of(Model& model, const at::Tensor& inputs);

/// The module's parameters by name, sharing their memory.
[[nodiscard]] std::map<std::string, at::Tensor> parameter_map(const torch::nn::Module& module);
/// The module's buffers by name, sharing their memory.
[[nodiscard]] std::map<std::string, at::Tensor> buffer_map(const torch::nn::Module& module);

}  // namespace lockstep
