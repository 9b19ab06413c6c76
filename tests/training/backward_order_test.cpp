#include <random>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>

#include "framework/maps/pmap.h"
#include "framework/training/gradient_hooks.h"
#include "tests/catch.h"
#include "tests/support/settings.h"
#include "tests/training/models.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::vector<std::size_t> order_in_backward(const at::Tensor& loss,
                                           const std::vector<at::Tensor>& parameters) {
  std::vector<std::size_t> order;
  training::GradientHooks hooks(
      std::vector<std::string>(parameters.size()), parameters,
      {.begin = [] {},
       .ready = [&](std::size_t index, const at::Tensor&) { order.push_back(index); },
       .end = [] {}});
  hooks.backward(loss, {});
  return order;
}

std::vector<std::size_t> order_from_graph(const at::Tensor& loss,
                                          const std::vector<at::Tensor>& parameters) {
  std::vector<std::size_t> order;
  pmap([&] { order = training::agreed_backward_order(loss, parameters, "i"); }, {.axis_size = 1})();
  return order;
}

}  // namespace

TEST_CASE("the order read from the graph is that of the backward") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 100; ++round) {
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 8; ++i) parameters.push_back(at::ones({3}).set_requires_grad(true));
    std::vector<at::Tensor> values;
    for (const auto& parameter : parameters) values.push_back(parameter * 2.0);
    for (int i = 0; i < 20; ++i) {
      const at::Tensor& a = values[random() % values.size()];
      const at::Tensor& b = values[random() % values.size()];
      values.push_back(random() % 3 == 0 ? at::sin(a) : a * b + parameters[random() % 8]);
    }
    const at::Tensor loss = (values.back() + at::tanh(values[values.size() - 2])).sum();
    auto predicted = order_from_graph(loss, parameters);
    REQUIRE(predicted.size() == parameters.size());
    const auto actual = order_in_backward(loss, parameters);
    REQUIRE(actual.size() <= predicted.size());
    // Those that the loss does not reach come last, in reverse.
    for (std::size_t i = actual.size(); i + 1 < predicted.size(); ++i) {
      CHECK(predicted[i] > predicted[i + 1]);
    }
    predicted.resize(actual.size());
    CHECK(predicted == actual);
  }
}

TEST_CASE("without a loss the order is the reverse one") {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 3; ++i) parameters.push_back(at::ones({1}).set_requires_grad(true));
  CHECK(order_from_graph({}, parameters) == std::vector<std::size_t>{2, 1, 0});
}

TEST_CASE("hooks take the whole gradient, and leave other backwards alone") {
  const at::Tensor used_twice = at::ones({2}).set_requires_grad(true);
  std::vector<at::Tensor> gradients;
  {
    std::string calls;
    training::GradientHooks hooks(
        {"used_twice"}, {used_twice},
        {.begin = [&] { calls += "begin "; },
         .ready = [&](std::size_t, const at::Tensor& gradient) { gradients.push_back(gradient); },
         .end = [&] { calls += "end "; }});
    hooks.backward((used_twice * used_twice + used_twice * 3.0).sum(), {});
    CHECK(calls.empty());
    REQUIRE(gradients.size() == 1);
    CHECK(gradients[0].equal(at::ones({2}) * 5.0));
    CHECK(!used_twice.grad().defined());
    used_twice.sum().backward();
    CHECK(!used_twice.grad().defined());
    CHECK(gradients.size() == 2);
    CHECK(calls == "begin end ");
  }
  used_twice.sum().backward();
  CHECK(used_twice.grad().equal(at::ones({2})));
}
