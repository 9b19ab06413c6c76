#include "tests/training/models.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>

#include "framework/training/block.h"

namespace lockstep::testing {
namespace {

at::Tensor waves(std::vector<std::int64_t> sizes, double phase, double scale) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  const at::Tensor ramp = at::arange(count, at::kDouble);
  return at::sin(ramp * 0.7 + phase).mul(scale).to(at::kFloat).view(sizes);
}

}  // namespace

class OddModel::Part : public Block {
 public:
  Part(std::int64_t in, std::int64_t out, double phase) {
    weight = register_parameter("weight", waves({out, in}, phase, 0.3));
    bias = register_parameter("bias", waves({out}, phase + 1, 0.1));
  }
  at::Tensor forward(const at::Tensor& values) override {
    return at::tanh(at::linear(values, weight, bias));
  }
  at::Tensor weight;
  at::Tensor bias;
};

OddModel::OddModel(std::int64_t large, bool has_unused) {
  const std::vector<std::int64_t> widths{5, 7, large, 7, 3};
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    parts_.push_back(
        register_module("part" + std::to_string(i),
                        std::make_shared<Part>(widths[i], widths[i + 1], static_cast<double>(i))));
  }
  scale_ = register_parameter("scale", waves({1}, 1.5, 1.0));
  shift_ = register_parameter("shift", waves({3}, 0.2, 0.1).to(at::kDouble));
  frozen_ = register_parameter("frozen", waves({3}, 0.4, 0.1), /*requires_grad=*/false);
  register_parameter("same_scale", scale_);
  if (has_unused) register_parameter("unused", waves({9}, 0.9, 1.0));
}

at::Tensor OddModel::forward(const at::Tensor& inputs) {
  at::Tensor values = inputs;
  for (const auto& part : parts_) values = (*part)(values)*scale_;
  return values * scale_ + shift_.to(at::kFloat) + frozen_;
}

Samples samples(std::int64_t step, std::int64_t first, std::int64_t count) {
  const at::Tensor ramp =
      at::arange(first, first + count, at::kDouble).add(static_cast<double>(100 * step));
  const auto columns = [&](std::int64_t number, double rate) {
    const at::Tensor phases = at::arange(number, at::kDouble).mul(rate);
    return at::sin(ramp.unsqueeze(1) * 0.37 + phases).to(at::kFloat);
  };
  return {columns(5, 0.9), columns(3, 1.7)};
}

at::Tensor mean_loss(OddModel& model, const Samples& batch) {
  return at::mse_loss(model.forward(batch.inputs), batch.targets);
}

void clear_gradients(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) parameter.mutable_grad().reset();
}

std::map<std::string, at::Tensor> copies(const torch::nn::Module& module) {
  const c10::AutoGradMode no_grad(false);
  std::map<std::string, at::Tensor> all;
  for (const auto& item : module.named_parameters()) all.emplace(item.key(), item.value().clone());
  return all;
}

std::string first_difference(const std::map<std::string, at::Tensor>& a,
                             const std::map<std::string, at::Tensor>& b) {
  if (a.size() != b.size()) return "the numbers of parameters";
  for (const auto& [name, value] : a) {
    if (b.count(name) == 0 || !b.at(name).equal(value)) return name;
  }
  return "";
}

}  // namespace lockstep::testing
