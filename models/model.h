#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

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
};

/// The model that `options` name, its parameters float32. They depend on the options, `features`,
/// `outputs` and `seed` alone; any threads may make models at once. Throws ValueError for an
/// unknown name and for sizes below 1.
[[nodiscard]] std::shared_ptr<Model> make_model(const ModelOptions& options, std::int64_t features,
                                                std::int64_t outputs, std::uint64_t seed);

/// While this lives, models that this thread makes have parameters on the meta device, without
/// values or memory. For looking at their shapes.
class ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

 private:
  bool outer_;
};

/// model.forward(inputs) for float32 `inputs`, computed in the dtype of the model's parameters. The
/// result is float32.
[[nodiscard]] at::Tensor outputs_of(Model& model, const at::Tensor& inputs);

/// The module's parameters by name, sharing their memory.
[[nodiscard]] std::map<std::string, at::Tensor> parameter_map(const torch::nn::Module& module);
/// The module's buffers by name, sharing their memory.
[[nodiscard]] std::map<std::string, at::Tensor> buffer_map(const torch::nn::Module& module);

}  // namespace lockstep
