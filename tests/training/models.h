#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep::testing {

/// A model of awkward parameters: one of a single element, some with fewer elements than there are
/// replicas, odd sizes, a large one among small ones, one of another dtype, one used twice under
/// two names, one that is frozen and, if wanted, one that no loss depends on. Its parts are Blocks,
/// some parameters lie outside of them.
class OddModel : public torch::nn::Module {
 public:
  explicit OddModel(std::int64_t large = 37, bool has_unused = false);
  /// (samples, 5) to (samples, 3)
  at::Tensor forward(const at::Tensor& inputs);

 private:
  class Part;
  std::vector<std::shared_ptr<Part>> parts_;
  at::Tensor scale_;  // one element
  at::Tensor shift_;  // 3 elements, float64
  at::Tensor frozen_;
};

/// Sample inputs (samples, 5) and targets (samples, 3), a pure function of the numbers.
struct Samples {
  at::Tensor inputs;
  at::Tensor targets;
};
[[nodiscard]] Samples samples(std::int64_t step, std::int64_t first, std::int64_t count);

/// Mean squared error.
[[nodiscard]] at::Tensor mean_loss(OddModel& model, const Samples& batch);

/// Gives the module's parameters no gradient, as torch::optim::Optimizer::zero_grad() may.
void clear_gradients(const torch::nn::Module& module);

/// Copies of the module's parameters by name.
[[nodiscard]] std::map<std::string, at::Tensor> copies(const torch::nn::Module& module);

/// The first name whose tensors differ in a bit, or "".
[[nodiscard]] std::string first_difference(const std::map<std::string, at::Tensor>& a,
                                           const std::map<std::string, at::Tensor>& b);

}  // namespace lockstep::testing
