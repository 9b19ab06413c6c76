#include "models/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "models/layers.h"
#include "models/mlp.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

const keys::Picked kMlp = keys::Picked("mlp", MlpOptions{.hidden = {7, 3}});

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

bool same_bits(const std::map<std::string, at::Tensor>& a,
               const std::map<std::string, at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    if (b.count(name) == 0 || !same_bits(tensor, b.at(name))) return false;
  }
  return true;
}

std::vector<std::string> names(const Model& model) {
  std::vector<std::string> all;
  for (const auto& item : model.named_parameters()) all.push_back(item.key());
  return all;
}

TEST_CASE("linear starts at w = 1 and b = 0 and computes inputs times w plus b", "[models]") {
  const auto model = make_model(keys::Picked("linear"), value_sample({3}, 2), 0);
  CHECK(names(*model) == std::vector<std::string>{"w", "b"});
  const auto parameters = parameter_map(*model);
  CHECK(same_bits(parameters.at("w"), at::ones({2, 3}, at::kFloat)));
  CHECK(same_bits(parameters.at("b"), at::zeros({2}, at::kFloat)));
  CHECK(parameters.at("w").requires_grad());

  {
    const at::NoGradGuard no_grad;
    parameters.at("w").copy_(at::tensor({1.0F, 2.0F, 3.0F, -1.0F, 0.5F, 0.0F}).view({2, 3}));
    parameters.at("b").copy_(at::tensor({10.0F, 20.0F}));
  }
  const at::Tensor inputs = at::tensor({1.0F, 2.0F, 4.0F, 3.0F, 0.0F, 1.0F}).view({2, 3});
  const at::Tensor expected = at::tensor({27.0F, 20.0F, 16.0F, 17.0F}).view({2, 2});
  CHECK(same_bits(model->forward(inputs).detach(), expected));
}

TEST_CASE("linear takes one step of the pmean example", "[models]") {
  // Replica 0 of 1: xs = 0 1 2 3, ys = 2x + 0.5, one step at 0.01: w 1.085, b 0.04.
  const auto model = make_model(keys::Picked("linear"), value_sample({1}, 1), 0);
  const at::Tensor xs = at::arange(4, at::kFloat).view({4, 1});
  const at::Tensor ys = xs * 2 + 0.5;
  (model->forward(xs) - ys).square().mean().backward();
  const auto parameters = parameter_map(*model);
  CHECK(1 - 0.01 * parameters.at("w").grad().item<double>() == Approx(1.085).epsilon(1e-6));
  CHECK(0 - 0.01 * parameters.at("b").grad().item<double>() == Approx(0.04).epsilon(1e-6));
}

TEST_CASE("mlp names, sizes and bounds its parameters as layers", "[models]") {
  const auto model = make_model(kMlp, value_sample({5}, 2), 11);
  CHECK(names(*model) ==
        std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"});
  const auto parameters = parameter_map(*model);
  const std::vector<std::int64_t> widths{5, 7, 3, 2};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string path = std::to_string(i);
    const at::Tensor& weight = parameters.at(path + ".weight");
    const at::Tensor& bias = parameters.at(path + ".bias");
    CHECK(weight.sizes() == at::IntArrayRef({widths[i + 1], widths[i]}));
    CHECK(bias.sizes() == at::IntArrayRef({widths[i + 1]}));
    const double bound = 1 / std::sqrt(static_cast<double>(widths[i]));
    for (const at::Tensor& tensor : {weight, bias}) {
      CHECK(tensor.scalar_type() == at::kFloat);
      CHECK(tensor.requires_grad());
      CHECK(tensor.abs().max().item<double>() <= bound * (1 + 1e-6));
    }
  }
}

TEST_CASE("mlp without hidden layers is one layer", "[models]") {
  const auto model =
      make_model(keys::Picked("mlp", MlpOptions{.hidden = {}}), value_sample({5}, 2), 11);
  CHECK(names(*model) == std::vector<std::string>{"0.weight", "0.bias"});
}

TEST_CASE("mlp's start is uniform as torch::nn::Linear's is", "[models]") {
  const auto model =
      make_model(keys::Picked("mlp", MlpOptions{.hidden = {}}), value_sample({400}, 500), 5);
  const at::Tensor weight = parameter_map(*model).at("0.weight").detach().to(at::kDouble);
  const double bound = 1 / std::sqrt(400.0);
  // Of 200,000 uniform values: the mean is off by bound / sqrt(3 · 200,000) typically, the variance
  // is bound² / 3.
  CHECK(std::abs(weight.mean().item<double>()) < 5 * bound / std::sqrt(3 * 200'000.0));
  CHECK(weight.var().item<double>() == Approx(bound * bound / 3).epsilon(0.01));
  CHECK(weight.min().item<double>() < -0.999 * bound);
  CHECK(weight.max().item<double>() > 0.999 * bound);
}

TEST_CASE("mlp computes ReLU between its layers and none after the last", "[models]") {
  const auto model =
      make_model(keys::Picked("mlp", MlpOptions{.hidden = {2}}), value_sample({2}, 1), 0);
  const auto parameters = parameter_map(*model);
  {
    const at::NoGradGuard no_grad;
    parameters.at("0.weight").copy_(at::tensor({1.0F, 0.0F, 0.0F, 1.0F}).view({2, 2}));
    parameters.at("0.bias").copy_(at::tensor({0.5F, 0.0F}));
    parameters.at("1.weight").copy_(at::tensor({-2.0F, 3.0F}).view({1, 2}));
    parameters.at("1.bias").copy_(at::tensor({0.25F}));
  }
  // Hidden values before ReLU: (1.5, -4), (-1.5, 2).
  const at::Tensor inputs = at::tensor({1.0F, -4.0F, -2.0F, 2.0F}).view({2, 2});
  const at::Tensor expected = at::tensor({-2.75F, 6.25F}).view({2, 1});
  CHECK(same_bits(model->forward(inputs).detach(), expected));
}

TEST_CASE("a parameter's start depends on the seed, its name and its shape alone", "[models]") {
  const auto start = parameter_map(*make_model(kMlp, value_sample({5}, 2), 3));
  CHECK(same_bits(start, parameter_map(*make_model(kMlp, value_sample({5}, 2), 3))));
  const auto deeper = parameter_map(
      *make_model(keys::Picked("mlp", MlpOptions{.hidden = {7, 3, 4}}), value_sample({5}, 2), 3));
  CHECK(same_bits(start.at("1.weight"), deeper.at("1.weight")));
  const auto reseeded = parameter_map(*make_model(kMlp, value_sample({5}, 2), 4));
  CHECK_FALSE(same_bits(start.at("1.weight"), reseeded.at("1.weight")));
  CHECK_FALSE(same_bits(uniform({6}, 1.0, Key(3).fold("0.bias")),
                        uniform({6}, 1.0, Key(3).fold("1.bias"))));
}

TEST_CASE("a deferred model makes each parameter alone, with the bits of one made whole",
          "[models]") {
  const keys::Picked cnn = keys::Picked("cnn", CnnOptions{.channels = {3, 4}, .dense = {5}});
  for (const auto& [options, sample] : {std::pair{keys::Picked("linear"), value_sample({16}, 2)},
                                        {kMlp, value_sample({16}, 2)},
                                        {cnn, class_sample({1, 4, 4}, 2)}}) {
    INFO(options.name);
    const auto whole = parameter_map(*make_model(options, sample, 3));
    std::shared_ptr<Model> deferred;
    {
      const DeferredValues scope;
      deferred = make_model(options, sample, 3);
      const auto other = make_model(options, sample, 4);  // not mixed up with it
      CHECK(parameter_map(*other).size() == whole.size());
    }
    for (const auto& [name, parameter] : parameter_map(*deferred)) {
      CHECK(parameter.is_meta());
      CHECK(parameter.requires_grad());
      CHECK(same_bits(deferred->initial_value(name), whole.at(name)));
    }
    CHECK_THROWS_WITH(deferred->initial_value("weights"),
                      ContainsSubstring("has no deferred parameter 'weights'"));
  }
  CHECK_THROWS_AS(make_model(kMlp, value_sample({5}, 2), 0)->initial_value("0.weight"), ValueError);
}

TEST_CASE("making a model leaves LibTorch's process-wide generator alone", "[models]") {
  const auto state = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const at::Tensor before = state();
  const auto model =
      make_model(keys::Picked("mlp", MlpOptions{.hidden = {64}}), value_sample({32}, 10), 0);
  CHECK(same_bits(before, state()));
  at::rand({1});
  CHECK_FALSE(same_bits(before, state()));  // the comparison does see a draw
}

TEST_CASE("threads that make a model at once get the same bits", "[models]") {
  const keys::Picked options = keys::Picked("mlp", MlpOptions{.hidden = {64, 64}});
  const auto expected = parameter_map(*make_model(options, value_sample({32}, 10), 9));
  std::vector<std::map<std::string, at::Tensor>> made(4);
  std::vector<std::thread> threads;
  for (auto& result : made) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i)
        result = parameter_map(*make_model(options, value_sample({32}, 10), 9));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : made) CHECK(same_bits(expected, result));
}

TEST_CASE("make_model says what is wrong with its arguments", "[models]") {
  const auto names = model_registry().names();
  for (const std::string name : {"linear", "mlp", "cnn", "gpt"}) {
    CHECK(std::ranges::count(names, name) == 1);
  }
  CHECK_THROWS_WITH(make_model(keys::Picked("lineer"), value_sample({1}, 1), 0),
                    ContainsSubstring("'lineer' (did you mean 'linear'?)") &&
                        ContainsSubstring("linear, mlp, cnn"));
  CHECK_THROWS_AS(make_model(keys::Picked("lineer"), value_sample({1}, 1), 0), ValueError);
  CHECK_THROWS_WITH(make_model(kMlp, value_sample({0}, 1), 0),
                    ContainsSubstring("model mlp: inputs (0) have a size below 1"));
  CHECK_THROWS_WITH(make_model(kMlp, value_sample({1}, -2), 0),
                    ContainsSubstring("outputs") && ContainsSubstring("at least 1, not -2"));
  CHECK_THROWS_WITH(
      make_model(keys::Picked("mlp", MlpOptions{.hidden = {4, 0}}), value_sample({1}, 1), 0),
      ContainsSubstring("hidden must be from 1 to 1000000, not 0"));
}

TEST_CASE("buffers are those that there are", "[models]") {
  const auto model = make_model(keys::Picked("linear"), value_sample({3}, 2), 0);
  CHECK(buffer_map(*model).empty());
  model->register_buffer("mask", at::zeros({2}));
  model->register_buffer("none", at::Tensor());
  const auto buffers = buffer_map(*model);
  REQUIRE(buffers.size() == 1);
  CHECK(buffers.at("mask").equal(at::zeros({2})));
}

TEST_CASE("a model says which inputs it takes", "[models]") {
  const auto linear = make_model(keys::Picked("linear"), value_sample({3}, 2), 0);
  CHECK_THROWS_WITH(
      linear->forward(at::zeros({5, 4})),
      ContainsSubstring(
          "linear: inputs must be floating, (samples, 3) or of as many values, not Float (5, 4)"));
  const auto mlp = make_model(kMlp, value_sample({3}, 2), 0);
  CHECK_THROWS_WITH(
      mlp->forward(at::zeros({3})),
      ContainsSubstring(
          "mlp: inputs must be floating, (samples, 3) or of as many values, not Float (3)"));
}

}  // namespace
}  // namespace lockstep
