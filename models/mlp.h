#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/random.h"
#include "models/model.h"

namespace lockstep {

/// Fully connected layers for inputs (samples, features) or flattened to them, features → hidden …
/// → outputs, with ReLU between them. Layer i's parameters are "i.weight" (out, in) and "i.bias"
/// (out), a Block; they start as torch::nn::Linear's do, uniform within ±1/sqrt(in), each drawn
/// from `key` folded with its own name.
class Mlp : public Model {
 public:
  Mlp(std::int64_t features, const std::vector<std::int64_t>& hidden, std::int64_t outputs,
      const Key& key);

  at::Tensor forward(const at::Tensor& inputs) override;

 private:
  class Layer;
  std::int64_t features_;
  std::vector<std::shared_ptr<Layer>> layers_;
};

struct MlpOptions {
  std::vector<std::int64_t> hidden{1024, 1024};  ///< widths of the hidden layers
};

/// For the registry: floating inputs of any shape, flattened.
[[nodiscard]] ModelKind mlp_kind();

}  // namespace lockstep
