// Compares with what PyTorch computes: reference.py, which makes the same parameters and inputs.

#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>

#include "framework/base/random.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/mean_squared_error.h"
#include "models/cnn.h"
#include "models/gpt.h"
#include "models/linear.h"
#include "models/mlp.h"
#include "models/model.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

const nlohmann::json& reference() {
  static const nlohmann::json all = [] {
    std::ifstream in(LOCKSTEP_SOURCE_DIR "/tests/models/reference.json");
    return nlohmann::json::parse(in);
  }();
  return all;
}

// Uniform within `scale` of `center`, rounded to float32.
at::Tensor values(const std::string& name, const std::vector<std::int64_t>& shape,
                  double center = 0, double scale = 1) {
  const at::Tensor made = at::empty(shape, at::kDouble);
  const Key key = Key(0).fold(name);
  double* const to = made.data_ptr<double>();
  for (std::int64_t i = 0; i < made.numel(); ++i) {
    const double unit =
        static_cast<double>(key.draw(static_cast<std::uint64_t>(i)) >> 11) * 0x1p-53;
    to[i] = center + (2 * unit - 1) * scale;
  }
  return made.to(at::kFloat);
}

at::Tensor integers(const std::string& name, const std::vector<std::int64_t>& shape,
                    std::uint64_t limit) {
  const at::Tensor made = at::empty(shape, at::kLong);
  const Key key = Key(0).fold(name);
  std::int64_t* const to = made.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < made.numel(); ++i) {
    to[i] = static_cast<std::int64_t>(key.draw(static_cast<std::uint64_t>(i)) % limit);
  }
  return made;
}

at::Tensor parameter_values(const std::string& name, const std::vector<std::int64_t>& shape) {
  if (shape.size() == 1) return values(name, shape, name.ends_with("weight") ? 1 : 0, 0.1);
  std::int64_t inner = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) inner *= shape[i];
  return values(name, shape, 0, 1 / std::sqrt(static_cast<double>(inner)));
}

void set_parameters(torch::nn::Module& module) {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [name, parameter] : parameter_map(module)) {
    parameter.copy_(parameter_values(name, parameter.sizes().vec()));
  }
}

// `tolerance` is relative to the tensor's root mean square, for its elements too: what is left of a
// sum may be small. Of `count` elements the sum is off by the square root of as many.
void check_summary(const at::Tensor& tensor, const nlohmann::json& expected, double tolerance) {
  REQUIRE(tensor.sizes().vec() == expected.at("shape").get<std::vector<std::int64_t>>());
  const at::Tensor flat = tensor.detach().to(at::kDouble).reshape({-1});
  const std::int64_t count = flat.numel();
  const auto norm = expected.at("norm").get<double>();
  const double size = norm / std::sqrt(static_cast<double>(count));
  CHECK(std::abs(flat.norm().item<double>() - norm) <= tolerance * norm);
  CHECK(std::abs(flat.sum().item<double>() - expected.at("sum").get<double>()) <= tolerance * norm);
  const std::vector<std::int64_t> chosen{0, count / 3, 2 * count / 3, count - 1};
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    CHECK(std::abs(flat[chosen[i]].item<double>() - expected.at("elements")[i].get<double>()) <=
          tolerance * size);
  }
}

void check_summaries(const std::map<std::string, at::Tensor>& tensors,
                     const nlohmann::json& expected, double tolerance) {
  CHECK(tensors.size() == expected.size());
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    REQUIRE(expected.contains(name));
    check_summary(tensor, expected.at(name), tolerance);
  }
}

struct ReferenceModel {
  std::string name;
  std::shared_ptr<Model> model;
  std::shared_ptr<const Loss> loss = make_cross_entropy();
  at::Tensor inputs;
  at::Tensor targets;
};

ReferenceModel image_classifier(const std::string& name, const std::shared_ptr<Model>& model,
                                const std::vector<std::int64_t>& shape) {
  return {.name = name,
          .model = model,
          .inputs = values("inputs", shape),
          .targets = integers("targets", {shape[0]}, 5)};
}

ReferenceModel language_model(const std::string& name, std::int64_t positions, std::int64_t heads) {
  return {.name = name,
          .model = make_gpt({.layers = 2, .heads = heads, .width = 16}, 12, 29, Key(0)),
          .inputs = integers("inputs", {3, positions}, 29),
          .targets = integers("targets", {3, positions}, 29)};
}

std::shared_ptr<Model> cnn(const std::vector<std::int64_t>& image) {
  return make_model(keys::Picked("cnn", CnnOptions{.channels = {4, 6}, .dense = {10}}),
                    class_sample(image, 5), 0);
}

std::vector<ReferenceModel> reference_models() {
  return {
      {.name = "linear",
       .model = std::make_shared<Linear>(5, 3),
       .loss = make_mean_squared_error(),
       .inputs = values("inputs", {7, 5}),
       .targets = values("targets", {7, 3})},
      {.name = "mlp",
       .model = std::make_shared<Mlp>(20, std::vector<std::int64_t>{16, 12}, 5, Key(0)),
       .inputs = values("inputs", {9, 20}),
       .targets = integers("targets", {9}, 5)},
      image_classifier("cnn, one channel", cnn({1, 12, 12}), {6, 1, 12, 12}),
      image_classifier("cnn, three channels", cnn({3, 9, 14}), {6, 3, 9, 14}),
      language_model("gpt", 12, 4),
      language_model("gpt, one head, short", 7, 1),
  };
}

void check_model(const ReferenceModel& each, const nlohmann::json& expected, at::ScalarType dtype,
                 double tolerance) {
  const auto typed = [&](const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.to(dtype) : tensor;
  };
  const at::Tensor outputs = each.model->forward(typed(each.inputs));
  check_summary(outputs, expected.at("outputs"), tolerance);
  const at::Tensor value = each.loss->mean(outputs, typed(each.targets));
  CHECK(value.item<double>() == Approx(expected.at("loss").get<double>()).epsilon(tolerance));
  value.backward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& [name, parameter] : parameter_map(*each.model)) {
    gradients[name] = parameter.grad();
  }
  check_summaries(gradients, expected.at("gradients"), tolerance);
}

TEST_CASE("the models compute what PyTorch does, with the same gradients", "[models]") {
  const nlohmann::json& cases = reference().at("models");
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kFloat, 2e-5}, std::pair{at::kDouble, 1e-12}}) {
    const std::vector<ReferenceModel> models = reference_models();
    REQUIRE(models.size() + 2 == cases.size());
    for (std::size_t i = 0; i < models.size(); ++i) {
      INFO(models[i].name << ", " << dtype);
      REQUIRE(cases[i].at("name") == models[i].name);
      set_parameters(*models[i].model);
      models[i].model->to(dtype);
      check_model(models[i], cases[i], dtype, tolerance);
    }
  }
}

}  // namespace
}  // namespace lockstep
