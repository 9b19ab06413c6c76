#include "models/cnn.h"

#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include "framework/base/errors.h"
#include "framework/objectives/cross_entropy.h"
#include "models/layers.h"
#include "models/model.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

const keys::Picked kSmall = keys::Picked("cnn", CnnOptions{.channels = {2, 3}, .dense = {5}});

at::Tensor noise(const std::vector<std::int64_t>& sizes, std::uint64_t seed) {
  return uniform(sizes, 1.0, Key(seed));
}

std::map<std::string, at::Tensor> gradients(Model& model, const at::Tensor& inputs,
                                            const at::Tensor& targets) {
  model.zero_grad();
  make_cross_entropy()->mean(model.forward(inputs), targets).backward();
  std::map<std::string, at::Tensor> result;
  for (const auto& [name, parameter] : parameter_map(model))
    result[name] = parameter.grad().clone();
  return result;
}

// The network in the textbook's way: convolution of contiguous images, ReLU, pooling.
at::Tensor textbook(const std::map<std::string, at::Tensor>& p, const at::Tensor& inputs) {
  at::Tensor x = inputs.view({-1, 1, 28, 28});
  for (const std::string layer : {"conv.0", "conv.1"}) {
    x = at::conv2d(x, p.at(layer + ".weight"), p.at(layer + ".bias"), 1, 1);
    x = at::max_pool2d(at::relu(x), 2);
  }
  x = at::relu(at::linear(x.flatten(1), p.at("dense.0.weight"), p.at("dense.0.bias")));
  return at::linear(x, p.at("dense.1.weight"), p.at("dense.1.bias"));
}

TEST_CASE("cnn has 0.42 million parameters on Fashion-MNIST", "[models]") {
  const auto model = make_model(keys::Picked("cnn"), class_sample({1, 28, 28}, 10), 0);
  const std::map<std::string, std::vector<std::int64_t>> expected{
      {"conv.0.weight", {32, 1, 3, 3}},      {"conv.0.bias", {32}},    //
      {"conv.1.weight", {64, 32, 3, 3}},     {"conv.1.bias", {64}},    //
      {"dense.0.weight", {128, 64 * 7 * 7}}, {"dense.0.bias", {128}},  //
      {"dense.1.weight", {10, 128}},         {"dense.1.bias", {10}}};
  std::int64_t count = 0;
  const auto parameters = parameter_map(*model);
  CHECK(parameters.size() == expected.size());
  for (const auto& [name, sizes] : expected) {
    INFO(name);
    REQUIRE(parameters.count(name) == 1);
    const at::Tensor& parameter = parameters.at(name);
    CHECK(parameter.sizes() == at::IntArrayRef(sizes));
    CHECK(parameter.is_contiguous());
    CHECK(parameter.requires_grad());
    count += parameter.numel();
  }
  CHECK(count == 421'642);
  CHECK(model->forward(at::zeros({3, 1, 28, 28})).sizes() == at::IntArrayRef({3, 10}));
}

TEST_CASE("cnn's parameters start as torch::nn's layers do, each from its own name", "[models]") {
  const auto parameters =
      parameter_map(*make_model(keys::Picked("cnn"), class_sample({1, 28, 28}, 10), 3));
  const std::map<std::string, double> fan_in{
      {"conv.0", 9}, {"conv.1", 9 * 32}, {"dense.0", 64 * 49}, {"dense.1", 128}};
  for (const auto& [name, values] : fan_in) {
    const double bound = 1 / std::sqrt(values);
    for (const std::string part : {".weight", ".bias"}) {
      INFO(name << part);
      const double largest = parameters.at(name + part).abs().max().item<double>();
      CHECK(largest <= bound * (1 + 1e-6));
      CHECK(largest > 0.7 * bound);
    }
  }
  const auto again =
      parameter_map(*make_model(keys::Picked("cnn"), class_sample({1, 28, 28}, 10), 3));
  const auto reseeded =
      parameter_map(*make_model(keys::Picked("cnn"), class_sample({1, 28, 28}, 10), 4));
  for (const auto& [name, parameter] : parameters) {
    CHECK(parameter.equal(again.at(name)));
    CHECK_FALSE(parameter.equal(reseeded.at(name)));
  }
  CHECK_FALSE(parameters.at("conv.0.bias").equal(parameters.at("dense.0.bias").narrow(0, 0, 32)));
}

TEST_CASE("cnn computes convolution, ReLU and pooling, and their gradients", "[models]") {
  const auto model = make_model(keys::Picked("cnn"), class_sample({1, 28, 28}, 10), 1);
  const at::Tensor inputs = noise({4, 1, 28, 28}, 7);
  const at::Tensor targets = at::tensor({3, 0, 9, 3}, at::kLong);
  const auto parameters = parameter_map(*model);
  const at::Tensor outputs = model->forward(inputs);
  CHECK(outputs.is_contiguous());
  CHECK(at::allclose(outputs, textbook(parameters, inputs), 1e-4, 1e-5));

  const auto found = gradients(*model, inputs, targets);
  model->zero_grad();
  make_cross_entropy()->mean(textbook(parameters, inputs), targets).backward();
  for (const auto& [name, gradient] : found) {
    INFO(name);
    CHECK(parameters.at(name).grad().is_contiguous());
    CHECK(at::allclose(gradient, parameters.at(name).grad(), 1e-3, 1e-5));
  }
}

TEST_CASE("cnn's gradients are those of finite differences", "[models]") {
  const auto model = make_model(kSmall, class_sample({1, 6, 6}, 3), 2);
  model->to(at::kDouble);
  const at::Tensor inputs = noise({3, 1, 6, 6}, 5).to(at::kDouble);
  const at::Tensor targets = at::tensor({2, 0, 1}, at::kLong);
  const auto expected = gradients(*model, inputs, targets);
  const at::NoGradGuard no_grad;
  const auto value = [&] {
    return make_cross_entropy()->mean(model->forward(inputs), targets).item<double>();
  };
  constexpr double kStep = 1e-6;
  for (const auto& [name, parameter] : parameter_map(*model)) {
    at::Tensor flat = parameter.detach().view(-1);
    for (std::int64_t i = 0; i < flat.numel(); i += 3) {
      INFO(name << " " << i);
      const double before = flat[i].item<double>();
      flat[i] = before + kStep;
      const double above = value();
      flat[i] = before - kStep;
      const double below = value();
      flat[i] = before;
      CHECK((above - below) / (2 * kStep) ==
            Approx(expected.at(name).view(-1)[i].item<double>()).epsilon(1e-4).margin(1e-8));
    }
  }
}

TEST_CASE("cnn gives the same bits each time and in each thread", "[models]") {
  const at::Tensor inputs = noise({64, 1, 28, 28}, 9);
  const at::Tensor targets = at::arange(64, at::kLong).remainder(10);
  const auto run = [&] {
    return gradients(*make_model(keys::Picked("cnn"), class_sample({1, 28, 28}, 10), 1), inputs,
                     targets);
  };
  const auto alone = [&] {
    std::map<std::string, at::Tensor> result;
    std::thread([&] { result = run(); }).join();
    return result;
  };
  const auto first = alone();
  std::vector<std::map<std::string, at::Tensor>> more(2);
  std::vector<std::thread> threads;
  for (auto& result : more) threads.emplace_back([&] { result = run(); });
  for (std::thread& thread : threads) thread.join();
  more.push_back(alone());
  for (const auto& other : more) {
    for (const auto& [name, gradient] : first) {
      INFO(name);
      CHECK(gradient.equal(other.at(name)));
    }
  }
}

TEST_CASE("cnn without convolutions is an mlp, and odd sides lose their last row", "[models]") {
  const at::Tensor inputs = noise({2, 1, 5, 5}, 1);
  const auto flat = make_model(keys::Picked("cnn", CnnOptions{.channels = {}, .dense = {4}}),
                               class_sample({1, 5, 5}, 3), 0);
  CHECK(parameter_map(*flat).at("dense.0.weight").sizes() == at::IntArrayRef({4, 25}));
  CHECK(flat->forward(inputs).sizes() == at::IntArrayRef({2, 3}));
  const auto odd = make_model(keys::Picked("cnn", CnnOptions{.channels = {4}, .dense = {}}),
                              class_sample({1, 5, 5}, 3), 0);
  CHECK(parameter_map(*odd).at("dense.0.weight").sizes() == at::IntArrayRef({3, 4 * 2 * 2}));
  CHECK(odd->forward(inputs).sizes() == at::IntArrayRef({2, 3}));
  CHECK(odd->forward(at::zeros({0, 1, 5, 5})).sizes() == at::IntArrayRef({0, 3}));
}

TEST_CASE("cnn takes images of several channels that are no squares", "[models]") {
  const keys::Picked options("cnn", CnnOptions{.channels = {4, 5}, .dense = {6}});
  const auto model = make_model(options, class_sample({3, 8, 11}, 7), 1);
  const auto parameters = parameter_map(*model);
  CHECK(parameters.at("conv.0.weight").sizes() == at::IntArrayRef({4, 3, 3, 3}));
  CHECK(parameters.at("dense.0.weight").sizes() == at::IntArrayRef({6, 5 * 2 * 2}));
  const at::Tensor images = noise({2, 3, 8, 11}, 3);
  at::Tensor x = images;
  for (const std::string layer : {"conv.0", "conv.1"}) {
    x = at::conv2d(x, parameters.at(layer + ".weight"), parameters.at(layer + ".bias"), 1, 1);
    x = at::max_pool2d(at::relu(x), 2);
  }
  x = at::relu(
      at::linear(x.flatten(1), parameters.at("dense.0.weight"), parameters.at("dense.0.bias")));
  x = at::linear(x, parameters.at("dense.1.weight"), parameters.at("dense.1.bias"));
  CHECK(at::allclose(model->forward(images), x, 1e-4, 1e-5));
  CHECK_THROWS_WITH(model->forward(at::zeros({2, 3, 11, 8})),
                    ContainsSubstring("(samples, 3, 8, 11), not (2, 3, 11, 8)"));
  CHECK_THROWS_WITH(make_model(options, class_sample({3, 3, 11}, 7), 1),
                    ContainsSubstring("images of 3x11 cannot be halved 2 times"));
  CHECK_THROWS_WITH(make_model(options, class_sample({0, 8, 8}, 7), 1),
                    ContainsSubstring("inputs (0, 8, 8) have a size below 1"));
}

TEST_CASE("cnn says what is wrong with its sizes and inputs", "[models]") {
  CHECK_THROWS_AS(make_model(keys::Picked("cnn"), value_sample({784}, 10), 0), ValueError);
  CHECK_THROWS_WITH(make_model(keys::Picked("cnn"), value_sample({784}, 10), 0),
                    "model cnn takes floating images (channels, height, width), not Float (784)");
  CHECK_THROWS_WITH(make_model(keys::Picked("cnn", CnnOptions{.channels = {2, 2, 2}}),
                               class_sample({1, 6, 6}, 10), 0),
                    ContainsSubstring("images of 6x6 cannot be halved 3 times") &&
                        ContainsSubstring("[2, 2, 2]"));
  CHECK_THROWS_WITH(make_model(keys::Picked("cnn", CnnOptions{.channels = {2, 0}}),
                               class_sample({1, 6, 6}, 10), 0),
                    ContainsSubstring("must be from 1 to 1000000, not 0"));
  CHECK_THROWS_WITH(
      make_model(keys::Picked("cnn", CnnOptions{.dense = {-1}}), class_sample({1, 28, 28}, 10), 0),
      ContainsSubstring("dense must be from 1 to 1000000, not -1"));
  CHECK_THROWS_WITH(make_model(kSmall, class_sample({1, 6, 6}, 3), 0)->forward(at::zeros({5, 36})),
                    ContainsSubstring("cnn: inputs must be (samples, 1, 6, 6), not (5, 36)"));
}

}  // namespace
}  // namespace lockstep
