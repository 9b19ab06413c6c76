#include "tests/train/waiting_model.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include "framework/training/block.h"
#include "framework/training/process_generator.h"
#include "models/model.h"

namespace lockstep::testing {
namespace {

struct WaitingOptions {
  std::int64_t layers = 4;
  std::int64_t values = 1000;
  double forward_ms = 10;
  double backward_ms = 20;
};

keys::ConfigKeys waiting_keys(WaitingOptions& options) {
  const auto time = keys::from_to(0.0, 1e4);
  return {{"layers", keys::number(options.layers, keys::kMillion), "number of layers"},
          {"values", keys::number(options.values, keys::kBillion), "of a layer's parameter"},
          {"forward_ms", keys::number(options.forward_ms, time), "of all layers"},
          {"backward_ms", keys::number(options.backward_ms, time), "of all layers"}};
}

void wait_ms(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

class Wait : public torch::autograd::Function<Wait> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& parameter, double forward_ms, double backward_ms) {
    context->saved_data["values"] = parameter.numel();
    context->saved_data["backward_ms"] = backward_ms;
    wait_ms(forward_ms);
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    wait_ms(context->saved_data["backward_ms"].toDouble());
    return {gradients[0], at::zeros({context->saved_data["values"].toInt()}), at::Tensor(),
            at::Tensor()};
  }
};

class Layer : public Block {
 public:
  explicit Layer(const WaitingOptions& options)
      : options_(options),
        parameter_(register_parameter("parameter", at::zeros({options.values}))) {}

  at::Tensor forward(const at::Tensor& x) override {
    const auto layers = static_cast<double>(options_.layers);
    return Wait::apply(x, parameter_, options_.forward_ms / layers, options_.backward_ms / layers);
  }

 private:
  WaitingOptions options_;
  at::Tensor parameter_;
};

class Waiting : public Model {
 public:
  Waiting(const WaitingOptions& options, const SampleType& sample)
      : first_(register_module("first", torch::nn::Linear(sample.input.values(), 8))),
        last_(register_module("last", torch::nn::Linear(8, sample.outputs()))) {
    for (std::int64_t i = 0; i < options.layers; ++i) {
      layers_.push_back(
          register_module("layer" + std::to_string(i), std::make_shared<Layer>(options)));
    }
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor x = first_->forward(inputs.flatten(1));
    for (const auto& layer : layers_) x = (*layer)(x);
    return last_->forward(x);
  }

 private:
  torch::nn::Linear first_, last_;
  std::vector<std::shared_ptr<Layer>> layers_;
};

std::shared_ptr<Model> make_waiting(const WaitingOptions& options, const SampleType& sample,
                                    const Key& key) {
  return seeded(key.bits(), [&] { return std::make_shared<Waiting>(options, sample); });
}

}  // namespace

void register_waiting_model() {
  register_model(model_kind("waits", "waits where others compute", waiting_keys, make_waiting));
}

}  // namespace lockstep::testing
