#include "models/resnet.h"

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/training/stochastic_depth.h"
#include "framework/training/zero.h"
#include "models/layers.h"
#include "tests/catch.h"
#include "tests/models/graph_nodes.h"
#include "tests/support/message_of.h"
#include "tests/training/models.h"
#include "tests/training/zero_jobs.h"

namespace lockstep {
namespace {

using testing::Parameters;

std::shared_ptr<Model> small_resnet(const ResnetOptions& options, std::uint64_t seed = 1) {
  return std::make_shared<Resnet>(options, 3, 9, 8, 5, Key(seed));
}

at::Tensor some_images(std::int64_t first, std::int64_t samples) {
  std::vector<at::Tensor> images;
  for (std::int64_t i = first; i < first + samples; ++i) {
    images.push_back(uniform({3, 9, 8}, 1, Key(8).fold(static_cast<std::uint64_t>(i))));
  }
  return at::stack(images);
}

TEST_CASE("resnet has torchvision's names and shapes", "[models]") {
  const auto model =
      std::make_shared<Resnet>(ResnetOptions{.depth = 8, .width = 4}, 3, 32, 32, 10, Key(0));
  std::map<std::string, std::vector<std::int64_t>> expected{
      {"conv1.weight", {4, 3, 3, 3}},
      {"layer1.0.conv1.weight", {4, 4, 3, 3}},
      {"layer1.0.conv2.weight", {4, 4, 3, 3}},
      {"layer2.0.conv1.weight", {8, 4, 3, 3}},
      {"layer2.0.conv2.weight", {8, 8, 3, 3}},
      {"layer2.0.downsample.0.weight", {8, 4, 1, 1}},
      {"layer3.0.conv1.weight", {16, 8, 3, 3}},
      {"layer3.0.conv2.weight", {16, 16, 3, 3}},
      {"layer3.0.downsample.0.weight", {16, 8, 1, 1}},
      {"fc.weight", {10, 16}},
      {"fc.bias", {10}},
  };
  std::map<std::string, std::vector<std::int64_t>> expected_buffers;
  const std::map<std::string, std::int64_t> norms{{"bn1", 4},
                                                  {"layer1.0.bn1", 4},
                                                  {"layer1.0.bn2", 4},
                                                  {"layer2.0.bn1", 8},
                                                  {"layer2.0.bn2", 8},
                                                  {"layer3.0.bn1", 16},
                                                  {"layer2.0.downsample.1", 8},
                                                  {"layer3.0.bn2", 16},
                                                  {"layer3.0.downsample.1", 16}};
  for (const auto& [name, channels] : norms) {
    expected[name + ".weight"] = {channels};
    expected[name + ".bias"] = {channels};
    expected_buffers[name + ".running_mean"] = {channels};
    expected_buffers[name + ".running_var"] = {channels};
    expected_buffers[name + ".num_batches_tracked"] = {};
  }
  std::map<std::string, std::vector<std::int64_t>> found;
  std::map<std::string, std::vector<std::int64_t>> found_buffers;
  for (const auto& [name, each] : parameter_map(*model)) found[name] = each.sizes().vec();
  for (const auto& [name, each] : buffer_map(*model)) found_buffers[name] = each.sizes().vec();
  CHECK(found == expected);
  CHECK(found_buffers == expected_buffers);

  std::int64_t count = 0;
  for (const auto& [name, parameter] :
       parameter_map(*std::make_shared<Resnet>(ResnetOptions{}, 3, 32, 32, 10, Key(0)))) {
    count += parameter.numel();
  }
  CHECK(count == 272'474);
}

TEST_CASE("resnet's convolutions start as He et al. have it, each from its own name", "[models]") {
  const auto made = [](std::uint64_t seed) {
    return parameter_map(
        *std::make_shared<Resnet>(ResnetOptions{.depth = 14}, 3, 8, 8, 100, Key(seed)));
  };
  const auto parameters = made(3);
  const auto again = made(3);
  const auto reseeded = made(4);
  for (const auto& [name, parameter] : parameters) {
    INFO(name);
    CHECK(parameter.equal(again.at(name)));
    if (parameter.dim() == 1) {
      CHECK(parameter.eq(name.ends_with("weight") ? 1 : 0).all().item<bool>());
      continue;
    }
    CHECK_FALSE(parameter.equal(reseeded.at(name)));
    const auto n = static_cast<double>(parameter.numel());
    const auto fan_out = n / static_cast<double>(parameter.size(1));
    const double deviation =
        parameter.dim() == 4 ? std::sqrt(2 / fan_out) : std::sqrt(1.0 / 64 / 3);
    CHECK(parameter.std().item<double>() == Approx(deviation).epsilon(5 / std::sqrt(2 * n)));
    CHECK(std::abs(parameter.mean().item<double>()) < 5 * deviation / std::sqrt(n));
  }
  CHECK_FALSE(parameters.at("layer1.0.conv1.weight").equal(parameters.at("layer1.1.conv1.weight")));

  DeferredValues deferred;
  const auto model = std::make_shared<Resnet>(ResnetOptions{.depth = 14}, 3, 8, 8, 100, Key(3));
  deferred.hand_over(*model);
  for (const auto& [name, parameter] : parameter_map(*model)) {
    INFO(name);
    CHECK(
        (parameter.is_meta() ? model->initial_value(name) : parameter).equal(parameters.at(name)));
    CHECK((parameter.is_meta() || parameter.dim() == 1));
  }
}

// The network of three blocks in training mode. `drop` gets each block's branch and its path.
at::Tensor resnet_by_hand(
    const Parameters& p, const at::Tensor& images,
    const std::function<at::Tensor(const at::Tensor& branch, const std::string& path)>& drop) {
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return at::batch_norm(x, p.at(name + ".weight"), p.at(name + ".bias"), {}, {}, true, 0.1, 1e-5,
                          false);
  };
  at::Tensor x = at::relu(norm(at::conv2d(images, p.at("conv1.weight"), {}, 1, 1), "bn1"));
  for (int stage = 1; stage <= 3; ++stage) {
    const std::string path = "layer" + std::to_string(stage) + ".0.";
    const std::int64_t stride = stage == 1 ? 1 : 2;
    at::Tensor y = at::conv2d(x, p.at(path + "conv1.weight"), {}, stride, 1);
    y = at::conv2d(at::relu(norm(y, path + "bn1")), p.at(path + "conv2.weight"), {}, 1, 1);
    y = drop(norm(y, path + "bn2"), path);
    if (stage > 1) {
      x = norm(at::conv2d(x, p.at(path + "downsample.0.weight"), {}, stride),
               path + "downsample.1");
    }
    x = at::relu(x + y);
  }
  return at::linear(x.flatten(2).mean(2), p.at("fc.weight"), p.at("fc.bias"));
}

TEST_CASE("resnet drops branches, the deeper the more often", "[models]") {
  const testing::Quiet quiet;
  std::string problem = "no replica ran";
  REQUIRE(launch(
              [&] {
                const auto model = small_resnet({.depth = 8, .width = 4, .stochastic_depth = 0.9});
                ZeroTrainer trainer(*model, {.seed = 7});
                const Key key = Key(7)
                                    .fold("stochastic_depth")
                                    .fold(std::uint64_t{0})
                                    .fold(std::uint64_t{0})
                                    .fold(std::uint64_t{0});
                const at::Tensor images = some_images(0, 6);
                const at::Tensor expected = resnet_by_hand(
                    parameter_map(*model), images,
                    [&](const at::Tensor& branch, const std::string& path) {
                      const double p = 0.3 * (path[5] - '0');  // of layer1, layer2, layer3
                      return stochastic_depth(
                          branch, p, key.fold(path + "stochastic_depth").fold(std::uint64_t{0}));
                    });
                const bool is_right = at::allclose(model->forward(images), expected, 1e-4, 1e-5);
                problem = is_right ? "" : "other outputs";
              },
              testing::threads(1, Backend::automatic)) == 0);
  CHECK(problem == "");
}

// Parameters and buffers after three steps; all replicas must agree.
Parameters train_resnet(const ResnetOptions& options, const ZeroOptions& zero, Backend backend,
                        std::int64_t workers) {
  return testing::result_of_job(testing::threads(2, backend, workers), [&] {
    const auto model = small_resnet(options);
    ZeroTrainer trainer(*model, zero);
    const std::int64_t samples = 3 + axis_index("data");
    const at::Tensor targets = at::arange(samples, at::kLong);
    for (std::int64_t step = 0; step < 3; ++step) {
      const at::Tensor images = some_images(10 * step + 3 * axis_index("data"), samples);
      trainer.backward(make_cross_entropy()->mean(model->forward(images), targets));
      trainer.step(testing::kRate);
    }
    trainer.check_agreement();
    const auto whole = trainer.whole_parameters();
    Parameters state = testing::copies(*model);
    for (const auto& [name, buffer] : buffer_map(*model)) state[name] = buffer.clone();
    return state;
  });
}

TEST_CASE("resnet trains to the same bits at every stage and placement", "[models]") {
  const testing::Quiet quiet;
  const ResnetOptions options{.depth = 8, .width = 4, .stochastic_depth = 0.3};
  const Parameters expected = train_resnet(options, testing::adam(0), Backend::automatic, 2);
  const auto start = parameter_map(*small_resnet(options));
  for (const auto& [name, parameter] : start) CHECK_FALSE(parameter.equal(expected.at(name)));
  CHECK(expected.at("bn1.num_batches_tracked").item<std::int64_t>() == 3);
  CHECK(testing::first_difference(train_resnet(options, testing::adam(0), Backend::automatic, 1),
                                  expected) == "");
  for (const int stage : {1, 2, 3}) {
    INFO("stage " << stage);
    CHECK(testing::first_difference(train_resnet(options, testing::adam(stage), Backend::gloo, 2),
                                    expected) == "");
    ResnetOptions recomputed = options;
    recomputed.recompute = true;
    CHECK(testing::first_difference(
              train_resnet(recomputed, testing::adam(stage), Backend::gloo, 2), expected) == "");
  }
}

TEST_CASE("resnet with recompute keeps no activations of its blocks", "[models]") {
  ResnetOptions options{.depth = 20, .width = 2};
  const auto outputs = [&] {
    const auto model = small_resnet(options);
    model->eval();
    return model->forward(some_images(0, 2));
  };
  const at::Tensor kept = outputs();
  const std::size_t parameters = small_resnet(options)->parameters().size();
  options.recompute = true;
  const at::Tensor recomputed = outputs();
  CHECK(recomputed.equal(kept));
  // Each parameter has a node, and each block a few around what runs it again.
  CHECK(testing::graph_nodes(recomputed) < parameters + 45);
  CHECK(testing::graph_nodes(kept) > parameters + 60);
}

TEST_CASE("resnet says what is wrong with its sizes and inputs", "[models]") {
  const auto refusal = [](const ResnetOptions& options, std::int64_t height = 8,
                          std::int64_t classes = 5) {
    return testing::message_of<ValueError>(
        [&] { (void)std::make_shared<Resnet>(options, 3, height, 8, classes, Key(0)); });
  };
  for (const std::int64_t depth : {2, 18, -4}) {
    CHECK(refusal({.depth = depth}) ==
          "model resnet: depth must be 6n + 2, with n from 1 to 200, not " + std::to_string(depth));
  }
  CHECK(refusal({.width = 0}) == "model resnet: width must be from 1 to 2048, not 0");
  CHECK(refusal({.stochastic_depth = -0.5}) ==
        "model resnet: stochastic_depth must be from 0 to 1, not -0.5");
  CHECK(refusal({}, 0) ==
        "model resnet: images (channels, height, width) must not be empty, not (3, 0, 8)");
  CHECK(refusal({}, 8, 0) == "model resnet: classes must be at least 1, not 0");

  const auto model = small_resnet({.depth = 8, .width = 2});
  const auto misuse = [&](const at::Tensor& inputs) {
    return testing::message_of<ValueError>([&] { (void)model->forward(inputs); });
  };
  const std::string rule = "model resnet: inputs must be floating images (samples, 3, 9, 8), not ";
  CHECK(misuse(at::zeros({2, 3, 8, 9})) == rule + "Float (2, 3, 8, 9)");
  CHECK(misuse(at::zeros({2, 216})) == rule + "Float (2, 216)");
  CHECK(misuse(at::zeros({2, 3, 9, 8}, at::kByte)) == rule + "Byte (2, 3, 9, 8)");
  model->eval();
  CHECK(model->forward(at::zeros({2, 3, 9, 8})).sizes() == at::IntArrayRef({2, 5}));
}

}  // namespace
}  // namespace lockstep
