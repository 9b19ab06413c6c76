#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/model.h"

namespace lockstep {

/// What one run of a Block, or of a whole model, has shown.
struct SeenRun {
  std::vector<std::int64_t> output_shape;
  std::int64_t flops = 0;  ///< two for each multiply-add that OperationCount counts
};

/// A part of a model: the model itself, a Block, or a module that has parameters.
struct LayerSummary {
  std::string path;             ///< the module's name in the model; "" of the model itself
  std::string kind;             ///< its class, without namespaces
  std::int64_t parameters = 0;  ///< values in its own, without those of modules in it
  /// Its runs, in order. Only of Blocks and of the model: of other modules nobody knows when they
  /// run.
  std::vector<SeenRun> runs = {};
};

struct ModelSummary {
  std::vector<LayerSummary> layers;  ///< the model first, then as modules are registered
  std::int64_t parameters = 0;       ///< values of all; a parameter of several modules counts once
  std::int64_t trained_parameters = 0;  ///< … of those that require a gradient
  std::int64_t flops = 0;               ///< of the run
};

/// Runs the model on `inputs` in evaluation mode, without gradients, and looks. Its Blocks must
/// have no runner.
[[nodiscard]] ModelSummary summarize(Model& model, const at::Tensor& inputs);

/// A table for people: a line a layer, and the sums. `inputs` were those of one sample.
[[nodiscard]] std::string summary_text(const ModelSummary& summary, const at::Tensor& inputs);

}  // namespace lockstep
