// The pages' fragments of programs, in the order of their pages, each where what it uses is there.

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <lockstep/lockstep.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

using namespace lockstep;

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 2));
};

struct Layers {
  Tensor first, second;
};
LOCKSTEP_TREE(Layers, first, second)

Tensor loss(const Tensor& outputs, const Tensor& targets) {
  return at::mse_loss(outputs, targets);
}

Tensor loss_fn(const Tensor& params, const Tensor& inputs) {
  return (params * inputs).mean();
}

void zero(const std::shared_ptr<Net>& model, const Tensor& inputs, const Tensor& targets) {
#include "framework_training_1.inc"
#include "framework_training_2.inc"
#include "framework_training_5.inc"
#include "framework_training_6.inc"
#include "framework_training_8.inc"
}

void averaging(const std::shared_ptr<Net>& model, torch::optim::SGD& optimizer,
               const Tensor& inputs, const Tensor& targets) {
#include "framework_training_3.inc"
}

void randomness() {
#include "framework_training_4.inc"
}

void curves(const Tensor& inputs) {
#include "framework_training_7.inc"
}

void weights(const Tensor& inputs) {
#include "trainers_1.inc"
}

void inside(const Tensor& params, const Tensor& own_part_of_the_batch) {
#include "framework_collectives_1.inc"
}

void outside(const Tensor& w, const Tensor& xs) {
#include "framework_collectives_2.inc"
}

void on_a_mesh() {
#include "framework_collectives_3.inc"
}

void as_in_jax() {
#include "framework_collectives_4.inc"
}
