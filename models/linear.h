#pragma once

#include <cstdint>
#include <memory>

#include "framework/base/random.h"
#include "models/model.h"

namespace lockstep {

/// outputs = inputs·wᵀ + b, with the parameters "w" (outputs, features), which starts at 1, and "b"
/// (outputs), which starts at 0.
class Linear : public Model {
 public:
  Linear(std::int64_t features, std::int64_t outputs);

  at::Tensor forward(const at::Tensor& inputs) override;

 private:
  at::Tensor w_;
  at::Tensor b_;
};

/// For the registry: `options.hidden` must be empty or the default, `key` is not drawn from.
[[nodiscard]] std::shared_ptr<Model> make_linear(const ModelOptions& options, std::int64_t features,
                                                 std::int64_t outputs, const Key& key);

}  // namespace lockstep
