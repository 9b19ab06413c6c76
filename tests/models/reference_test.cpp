// Compares with what PyTorch computes: reference.py, which makes the same parameters and inputs.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/mean_squared_error.h"
#include "framework/training/batch_norm.h"
#include "framework/training/zero.h"
#include "models/cnn.h"
#include "models/gpt.h"
#include "models/linear.h"
#include "models/mlp.h"
#include "models/model.h"
#include "models/resnet.h"
#include "tests/catch.h"
#include "tests/training/zero_jobs.h"

namespace lockstep {
namespace {

const nlohmann::json& reference() {
  static const nlohmann::json all = [] {
    std::ifstream in(LOCKSTEP_SOURCE_DIR "/tests/models/reference.json");
    return nlohmann::json::parse(in);
  }();
  return all;
}

const nlohmann::json& model_case(std::string_view name) {
  const nlohmann::json& cases = reference().at("models");
  return *std::ranges::find_if(cases, [&](const auto& each) { return each.at("name") == name; });
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
          .model = std::make_shared<Gpt>(GptOptions{.layers = 2, .heads = heads, .width = 16}, 12,
                                         29, Key(0)),
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

// Adds a whole batch's parts in their order.
struct Parts {
  explicit Parts(std::vector<std::int64_t> its_sizes)
      : sizes(std::move(its_sizes)), outputs(sizes.size()), input_gradients(sizes.size()) {}

  // The part of replica `index`.
  [[nodiscard]] at::Tensor of(const at::Tensor& whole, std::int64_t index) const {
    std::int64_t begin = 0;
    for (std::int64_t i = 0; i < index; ++i) begin += sizes[static_cast<std::size_t>(i)];
    return whole.narrow(0, begin, sizes[static_cast<std::size_t>(index)]);
  }
  [[nodiscard]] std::int64_t replicas() const { return std::ssize(sizes); }

  std::vector<std::int64_t> sizes;
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> input_gradients;
  std::map<std::string, at::Tensor> gradients;  // of the whole batch
  std::map<std::string, at::Tensor> buffers;
  at::Tensor evaluated;
  double loss = 0;
};

std::map<std::string, at::Tensor> batch_norm_buffers(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> buffers;
  for (const auto& [name, buffer] : buffer_map(module)) buffers[name] = buffer.clone();
  return buffers;
}

// One step, without a change of parameters, on the parts of a batch.
void run_resnet(const std::vector<std::int64_t>& image, at::ScalarType dtype, Parts& parts) {
  std::mutex mutex;
  const at::Tensor images = values("inputs", image).to(dtype);
  const at::Tensor targets = integers("targets", {image[0]}, 5);
  REQUIRE(launch(
              [&] {
                const std::int64_t index = axis_index("data");
                const auto model =
                    std::make_shared<Resnet>(ResnetOptions{.depth = 14, .width = 4}, image[1],
                                             image[2], image[3], 5, Key(0));
                set_parameters(*model);
                model->to(dtype);
                ZeroTrainer trainer(*model, {});
                const at::Tensor outputs = model->forward(parts.of(images, index));
                // Replicas' gradients are averaged.
                const double share =
                    static_cast<double>(outputs.size(0)) / static_cast<double>(image[0]);
                const at::Tensor own =
                    make_cross_entropy()->mean(outputs, parts.of(targets, index)) * share;
                trainer.backward(own * static_cast<double>(parts.replicas()));
                std::map<std::string, at::Tensor> gradients;
                trainer.visit_gradients([&](const std::string& name, const at::Tensor& gradient) {
                  gradients[name] = gradient.clone();
                });
                trainer.step(0);
                model->eval();
                const c10::AutoGradMode no_grad(false);
                const at::Tensor evaluated = model->forward(images);
                const std::lock_guard lock(mutex);
                parts.outputs[static_cast<std::size_t>(index)] = outputs.detach();
                parts.loss += own.item<double>();
                parts.gradients = gradients;
                parts.evaluated = evaluated;
                parts.buffers = batch_norm_buffers(*model);
              },
              testing::threads(parts.replicas(), Backend::automatic)) == 0);
  std::erase_if(parts.buffers, [](const auto& each) { return each.second.dim() == 0; });
}

TEST_CASE("resnet on parts of a batch computes what PyTorch does on the whole", "[models]") {
  const testing::Quiet quiet;
  for (const auto& [name, image] :
       {std::pair{"resnet, one channel", std::vector<std::int64_t>{6, 1, 12, 12}},
        {"resnet, three channels", {6, 3, 9, 14}}}) {
    const nlohmann::json& expected = model_case(name);
    for (const std::vector<std::int64_t>& sizes :
         std::vector<std::vector<std::int64_t>>{{6}, {4, 2}, {1, 4, 1}}) {
      for (const auto& [dtype, tolerance] :
           {std::pair{at::kFloat, 1e-4}, std::pair{at::kDouble, 1e-11}}) {
        INFO(name << ", parts of " << join(sizes) << ", " << dtype);
        Parts parts(sizes);
        run_resnet(image, dtype, parts);
        check_summary(at::cat(parts.outputs), expected.at("outputs"), tolerance);
        CHECK(parts.loss == Approx(expected.at("loss").get<double>()).epsilon(tolerance));
        check_summaries(parts.gradients, expected.at("gradients"), tolerance);
        check_summaries(parts.buffers, expected.at("buffers"), tolerance);
        check_summary(parts.evaluated, expected.at("evaluated"), tolerance);
      }
    }
  }
}

// Two forwards and backwards on the parts of batches.
void run_batch_norm(const std::vector<std::int64_t>& shape, std::optional<double> momentum,
                    at::ScalarType dtype, Parts& parts) {
  std::mutex mutex;
  REQUIRE(launch(
              [&] {
                const std::int64_t index = axis_index("data");
                BatchNorm norm(BatchNormOptions{
                    .channels = shape[1], .momentum = momentum, .axis_name = "data"});
                set_parameters(*norm);
                norm->to(dtype);
                at::Tensor inputs, outputs;
                for (int step = 0; step < 2; ++step) {
                  const std::string number = std::to_string(step);
                  inputs = parts.of(values("inputs " + number, shape, 0.5 * step), index)
                               .to(dtype)
                               .clone()
                               .requires_grad_();
                  norm->zero_grad();
                  outputs = norm->forward(inputs);
                  const at::Tensor weights = parts.of(values("weights " + number, shape), index);
                  (outputs * weights.to(dtype)).sum().backward();
                }
                const std::lock_guard lock(mutex);
                parts.outputs[static_cast<std::size_t>(index)] = outputs.detach();
                parts.input_gradients[static_cast<std::size_t>(index)] = inputs.grad();
                for (const auto& [name, parameter] : parameter_map(*norm)) {
                  at::Tensor& sum = parts.gradients[name];
                  sum = sum.defined() ? sum + parameter.grad() : parameter.grad();
                }
                parts.buffers = batch_norm_buffers(*norm);
              },
              testing::threads(parts.replicas(), Backend::automatic)) == 0);
}

TEST_CASE("BatchNorm on parts of a batch computes what PyTorch does on the whole", "[models]") {
  const testing::Quiet quiet;
  for (const nlohmann::json& expected : reference().at("batch_norm")) {
    const auto shape = expected.at("shape").get<std::vector<std::int64_t>>();
    const auto momentum = expected.at("momentum").is_null()
                              ? std::nullopt
                              : std::optional(expected.at("momentum").get<double>());
    const std::int64_t samples = shape[0];
    for (const std::vector<std::int64_t>& sizes : std::vector<std::vector<std::int64_t>>{
             {samples}, {1, samples - 1}, {samples - 3, 0, 3}, {2, 1, samples - 3}}) {
      for (const auto& [dtype, tolerance] :
           {std::pair{at::kFloat, 2e-5}, std::pair{at::kDouble, 1e-12}}) {
        INFO(join(shape) << ", parts of " << join(sizes) << ", " << dtype);
        Parts parts(sizes);
        run_batch_norm(shape, momentum, dtype, parts);
        check_summary(at::cat(parts.outputs), expected.at("outputs"), tolerance);
        check_summary(at::cat(parts.input_gradients), expected.at("input_gradient"), tolerance);
        check_summaries(parts.gradients, expected.at("gradients"), tolerance);
        check_summaries(parts.buffers, expected.at("buffers"), tolerance);
      }
    }
  }
}

TEST_CASE("the models compute what PyTorch does, with the same gradients", "[models]") {
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kFloat, 2e-5}, std::pair{at::kDouble, 1e-12}}) {
    for (const ReferenceModel& each : reference_models()) {
      INFO(each.name << ", " << dtype);
      set_parameters(*each.model);
      each.model->to(dtype);
      check_model(each, model_case(each.name), dtype, tolerance);
    }
  }
}

}  // namespace
}  // namespace lockstep
