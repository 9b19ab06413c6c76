#include "trainers/commands/model_summary.h"

#include <memory>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/random.h"
#include "framework/training/block.h"
#include "framework/training/process_generator.h"
#include "models/gpt.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

// Two layers, of which the second is the first once more; and one that is never run.
class Shared : public Model {
 public:
  Shared()
      : first_(register_module("first", torch::nn::Linear(3, 3))),
        scale_(register_parameter("scale", at::ones({1}))) {
    register_module("again", first_);
    register_module("unused", torch::nn::Linear(torch::nn::LinearOptions(2, 5).bias(false)))
        ->weight.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    CHECK_FALSE(is_training());
    return first_->forward(first_->forward(inputs)) * scale_;
  }

 private:
  torch::nn::Linear first_;
  at::Tensor scale_;
};

std::vector<std::string> paths_of(const ModelSummary& summary) {
  std::vector<std::string> paths;
  for (const LayerSummary& layer : summary.layers) paths.push_back(layer.path);
  return paths;
}

}  // namespace

TEST_CASE("a summary of GPT has its parameters, shapes and FLOPs in closed form") {
  const std::int64_t layers = 2, width = 8, context = 6, vocabulary = 11;
  const auto model = std::make_shared<Gpt>(GptOptions{.layers = layers, .heads = 2, .width = width},
                                           context, vocabulary, Key(1));
  const at::Tensor tokens = at::arange(context).unsqueeze(0);
  const ModelSummary summary = summarize(*model, tokens);
  const std::int64_t matrices = 12 * width * width;
  CHECK(summary.parameters ==
        (vocabulary + context) * width + layers * (matrices + 13 * width) + 2 * width);
  CHECK(summary.trained_parameters == summary.parameters);
  const std::int64_t of_layer = 2 * (context * matrices + 2 * context * context * width);
  CHECK(summary.flops == layers * of_layer + 2 * context * width * vocabulary);

  REQUIRE(summary.layers.size() > 5);
  CHECK(summary.layers[0].path.empty());
  CHECK(summary.layers[0].kind == "Gpt");
  REQUIRE(summary.layers[0].runs.size() == 1);
  CHECK(summary.layers[0].runs[0].output_shape ==
        std::vector<std::int64_t>{1, context, vocabulary});
  std::int64_t sum = 0;
  for (const LayerSummary& layer : summary.layers) {
    INFO(layer.path);
    sum += layer.parameters;
    if (layer.path == "h.1") {
      CHECK(layer.kind == "Layer");
      CHECK(layer.parameters == 0);
      REQUIRE(layer.runs.size() == 1);
      CHECK(layer.runs[0].output_shape == std::vector<std::int64_t>{1, context, width});
      CHECK(layer.runs[0].flops == of_layer);
    } else if (layer.path == "wte") {  // embeds tokens, and scores them
      REQUIRE(layer.runs.size() == 2);
      CHECK(layer.runs[0].output_shape == std::vector<std::int64_t>{1, context, width});
      CHECK(layer.runs[0].flops == 0);
      CHECK(layer.runs[1].output_shape == std::vector<std::int64_t>{1, context, vocabulary});
      CHECK(layer.runs[1].flops == 2 * context * width * vocabulary);
    } else if (layer.path == "h.0.attn.c_attn") {
      CHECK(layer.parameters == 3 * width * (width + 1));
      CHECK(layer.runs.empty());
    }
  }
  CHECK(sum == summary.parameters);
  // It leaves the model as it was.
  CHECK(model->is_training());
  CHECK(summarize(*model, tokens).flops == summary.flops);

  const std::string text = summary_text(summary, tokens);
  CHECK_THAT(text, ContainsSubstring("One sample: inputs (1, 6).\n\nlayer ") &&
                       ContainsSubstring("\n(the model) ") &&
                       ContainsSubstring("  (1, 6, 8) (1, 6, 11)\n") &&
                       ContainsSubstring("\nFLOPs of a sample's forward: " +
                                         std::to_string(summary.flops) + "; two for"));
}

TEST_CASE("a model whose summary failed runs as before") {
  const std::int64_t context = 6;
  const auto model =
      std::make_shared<Gpt>(GptOptions{.layers = 1, .heads = 2, .width = 8}, context, 11, Key(1));
  const auto tokens = [](std::int64_t count) { return at::arange(count).unsqueeze(0); };
  const at::Tensor before = model->forward(tokens(context));
  CHECK_THROWS(summarize(*model, tokens(context + 1)));
  CHECK(model->forward(tokens(context)).equal(before));
}

TEST_CASE("a summary counts a shared parameter once, and frozen ones apart") {
  const auto model = seeded(1, [] { return std::make_shared<Shared>(); });
  const at::Tensor inputs = at::ones({1, 3});
  const ModelSummary summary = summarize(*model, inputs);
  CHECK(paths_of(summary) == std::vector<std::string>{"", "first", "again", "unused"});
  CHECK(summary.layers[0].parameters == 1);
  CHECK(summary.layers[1].kind == "Linear");
  CHECK(summary.layers[1].parameters == 12);
  CHECK(summary.layers[2].parameters == 0);
  CHECK(summary.layers[3].parameters == 10);
  CHECK(summary.parameters == 23);
  CHECK(summary.trained_parameters == 13);
  CHECK(summary.flops == 2 * 2 * 9);
  CHECK_THAT(summary_text(summary, inputs),
             ContainsSubstring("\nParameters: 23, of which 13 are trained;"));
}

}  // namespace lockstep
