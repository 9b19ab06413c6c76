#pragma once

#include <cstdint>

#include "models/model.h"

namespace lockstep {

/// outputs = inputs·wᵀ + b for inputs (samples, features) or flattened to them, with the parameters
/// "w" (outputs, features), which starts at 1, and "b" (outputs), which starts at 0.
class Linear : public Model {
 public:
  Linear(std::int64_t features, std::int64_t outputs);

  at::Tensor forward(const at::Tensor& inputs) override;

 private:
  at::Tensor w_;
  at::Tensor b_;
};

/// For the registry: floating inputs of any shape, flattened.
[[nodiscard]] ModelKind linear_kind();

}  // namespace lockstep
