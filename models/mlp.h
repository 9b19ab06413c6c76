#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/random.h"
#include "models/model.h"

namespace lockstep {

/// Fully connected layers, features → hidden … → outputs, with ReLU between them. Layer i's
/// parameters are "i.weight" (out, in) and "i.bias" (out), a Block; they start as
/// torch::nn::Linear's do, uniform within ±1/sqrt(in), each drawn from `key` folded with its own
/// name.
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

/// For the registry. Throws ValueError for a hidden width below 1.
[[nodiscard]] std::shared_ptr<Model> make_mlp(const ModelOptions& options, std::int64_t features,
                                              std::int64_t outputs, const Key& key);

}  // namespace lockstep
