#include "framework/training/autocast.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/training/block.h"
#include "framework/training/recompute.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

at::ScalarType type_of_product() {
  return at::linear(at::ones({2, 3}), at::ones({4, 3})).scalar_type();
}

class Layer : public Block {
 public:
  Layer() : weight(register_parameter("weight", at::ones({4, 3}) / 3)) {}
  at::Tensor forward(const at::Tensor& input) override {
    types.push_back(at::linear(input, weight).scalar_type());
    return at::linear(input, weight).to(at::kFloat);
  }
  at::Tensor weight;
  std::vector<at::ScalarType> types;
};

}  // namespace

TEST_CASE("in a scope products are bfloat16 and losses float32, and afterwards all is as before") {
  CHECK(type_of_product() == at::kFloat);
  CHECK(AutocastScope::type() == at::kFloat);
  {
    const AutocastScope scope(at::kBFloat16);
    CHECK(AutocastScope::type() == at::kBFloat16);
    CHECK(type_of_product() == at::kBFloat16);
    CHECK(at::mse_loss(at::ones({2}).to(at::kBFloat16), at::zeros({2})).scalar_type() ==
          at::kFloat);
    {
      const AutocastScope inner(at::kFloat);
      CHECK(type_of_product() == at::kFloat);
    }
    CHECK(type_of_product() == at::kBFloat16);
  }
  CHECK(type_of_product() == at::kFloat);
  CHECK_THROWS_AS(AutocastScope(at::kInt), ValueError);
}

TEST_CASE("parameters and their gradients stay float32") {
  const at::Tensor weight = (at::ones({4, 3}) / 3).requires_grad_();
  at::Tensor loss;
  {
    const AutocastScope scope(at::kBFloat16);
    loss = at::linear(at::ones({2, 3}), weight).to(at::kFloat).sum();
  }
  loss.backward();
  CHECK(weight.grad().scalar_type() == at::kFloat);
  CHECK(weight.grad().eq(2).all().item<bool>());
}

TEST_CASE("what a backward recomputes is computed in the forward's types") {
  const auto layer = std::make_shared<Layer>();
  at::Tensor loss;
  {
    const AutocastScope scope(at::kBFloat16);
    loss = recompute(*layer, at::ones({2, 3})).sum();
  }
  loss.backward();
  CHECK(layer->types == std::vector<at::ScalarType>{at::kBFloat16, at::kBFloat16});
}

}  // namespace lockstep
