#include "models/gpt.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/zero.h"
#include "models/layers.h"
#include "tests/catch.h"
#include "tests/models/graph_nodes.h"
#include "tests/support/message_of.h"
#include "tests/training/models.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

namespace lockstep {
namespace {

using testing::Parameters;
using Drop = std::function<at::Tensor(const at::Tensor& values, const std::string& path)>;

const GptOptions kSmallGpt{.layers = 2, .heads = 2, .width = 8};
constexpr std::int64_t kContext = 6;
constexpr std::int64_t kVocabulary = 11;

std::shared_ptr<Model> small_gpt(std::uint64_t seed, const GptOptions& options = kSmallGpt) {
  return std::make_shared<Gpt>(options, kContext, kVocabulary, Key(seed));
}

// A pure function of the numbers.
at::Tensor some_tokens(std::int64_t first, std::int64_t samples,
                       std::int64_t positions = kContext) {
  at::Tensor numbers = at::empty({samples, positions}, at::kLong);
  for (std::int64_t i = 0; i < samples; ++i) {
    for (std::int64_t j = 0; j < positions; ++j) {
      const auto index = static_cast<std::uint64_t>((first + i) * kContext + j);
      numbers[i][j] = static_cast<std::int64_t>(Key(99).draw(index) % kVocabulary);
    }
  }
  return numbers;
}

at::Tensor next_token_loss(Model& model, const at::Tensor& sequences) {
  const at::Tensor inputs = sequences.narrow(1, 0, sequences.size(1) - 1);
  const at::Tensor targets = sequences.narrow(1, 1, sequences.size(1) - 1);
  return at::cross_entropy_loss(model.forward(inputs).flatten(0, 1), targets.flatten());
}

at::Tensor normalized(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor centered = x - x.mean(-1, true);
  return centered / at::sqrt(centered.square().mean(-1, true) + 1e-5) * weight + bias;
}

// The network as the paper has it, head by head.
at::Tensor gpt_by_hand(const Parameters& p, const GptOptions& options, const at::Tensor& inputs,
                       const Drop& drop) {
  const std::int64_t positions = inputs.size(1);
  const std::int64_t size = options.width / options.heads;
  const at::Tensor& embeddings = p.at("wte.weight");
  at::Tensor x = embeddings.index({inputs}) + p.at("wpe.weight").narrow(0, 0, positions);
  x = drop(x, "drop");
  const at::Tensor later = at::ones({positions, positions}, at::kBool).triu(1);
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string h = "h." + std::to_string(layer) + ".";
    const auto norm = [&](const at::Tensor& values, const std::string& name) {
      return normalized(values, p.at(h + name + ".weight"), p.at(h + name + ".bias"));
    };
    const auto affine = [&](const at::Tensor& values, const std::string& name) {
      return at::matmul(values, p.at(h + name + ".weight")) + p.at(h + name + ".bias");
    };
    const at::Tensor qkv = affine(norm(x, "ln_1"), "attn.c_attn");
    std::vector<at::Tensor> shares;
    for (std::int64_t head = 0; head < options.heads; ++head) {
      const at::Tensor q = qkv.narrow(2, head * size, size);
      const at::Tensor k = qkv.narrow(2, options.width + head * size, size);
      const at::Tensor scores =
          at::matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(size));
      shares.push_back(
          at::softmax(scores.masked_fill(later, -std::numeric_limits<double>::infinity()), -1));
    }
    const at::Tensor kept = drop(at::stack(shares, 1), h + "attn.attn_dropout");
    std::vector<at::Tensor> mixed;
    for (std::int64_t head = 0; head < options.heads; ++head) {
      mixed.push_back(
          at::matmul(kept.select(1, head), qkv.narrow(2, 2 * options.width + head * size, size)));
    }
    x = x + drop(affine(at::cat(mixed, 2), "attn.c_proj"), h + "attn.resid_dropout");
    const at::Tensor inner = affine(norm(x, "ln_2"), "mlp.c_fc");
    const at::Tensor cubic = std::sqrt(2 / M_PI) * (inner + 0.044715 * inner.pow(3));
    const at::Tensor gelu = 0.5 * inner * (1 + at::tanh(cubic));
    x = x + drop(affine(gelu, "mlp.c_proj"), h + "mlp.dropout");
  }
  x = normalized(x, p.at("ln_f.weight"), p.at("ln_f.bias"));
  return at::matmul(x, embeddings.t());
}

at::Tensor no_drop(const at::Tensor& values, const std::string& /*path*/) {
  return values;
}

// Biases and LayerNorms start at 0 and 1, with which much can't be told apart.
void make_uneven(Model& model) {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [name, parameter] : parameter_map(model)) {
    parameter.add_(uniform(parameter.sizes().vec(), 0.3, Key(31).fold(name)));
  }
}

TEST_CASE("gpt has GPT-2's names, shapes and number of parameters", "[models]") {
  const DeferredValues deferred;
  const auto model = std::make_shared<Gpt>(GptOptions{}, 1024, 50257, Key(0));
  std::map<std::string, std::vector<std::int64_t>> expected{{"wte.weight", {50257, 768}},
                                                            {"wpe.weight", {1024, 768}},
                                                            {"ln_f.weight", {768}},
                                                            {"ln_f.bias", {768}}};
  for (int i = 0; i < 12; ++i) {
    const std::string h = "h." + std::to_string(i) + ".";
    for (const std::string norm : {"ln_1", "ln_2"}) {
      expected[h + norm + ".weight"] = {768};
      expected[h + norm + ".bias"] = {768};
    }
    expected[h + "attn.c_attn.weight"] = {768, 2304};
    expected[h + "attn.c_attn.bias"] = {2304};
    expected[h + "attn.c_proj.weight"] = {768, 768};
    expected[h + "attn.c_proj.bias"] = {768};
    expected[h + "mlp.c_fc.weight"] = {768, 3072};
    expected[h + "mlp.c_fc.bias"] = {3072};
    expected[h + "mlp.c_proj.weight"] = {3072, 768};
    expected[h + "mlp.c_proj.bias"] = {768};
  }
  std::int64_t count = 0;
  std::map<std::string, std::vector<std::int64_t>> found;
  for (const auto& [name, parameter] : parameter_map(*model)) {
    found[name] = parameter.sizes().vec();
    count += parameter.numel();
    CHECK(parameter.requires_grad());
  }
  CHECK(found == expected);
  CHECK(count == 124'439'808);
  CHECK(buffer_map(*model).empty());
}

TEST_CASE("gpt's parameters start as GPT-2's do, each from its own name", "[models]") {
  const GptOptions options{.layers = 3, .heads = 4, .width = 64};
  const auto made = [&](std::uint64_t seed) {
    return parameter_map(*std::make_shared<Gpt>(options, 32, 100, Key(seed)));
  };
  const auto parameters = made(3);
  const auto again = made(3);
  const auto reseeded = made(4);
  for (const auto& [name, parameter] : parameters) {
    INFO(name);
    CHECK(parameter.equal(again.at(name)));
    if (parameter.dim() == 1) {
      const bool is_gain = name.find("ln_") != std::string::npos && name.ends_with("weight");
      CHECK(parameter.eq(is_gain ? 1 : 0).all().item<bool>());
      continue;
    }
    CHECK_FALSE(parameter.equal(reseeded.at(name)));
    const double deviation = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(6.0) : 0.02;
    // Of n normal values the deviation is off by 1 / sqrt(2n) of itself typically.
    const auto n = static_cast<double>(parameter.numel());
    CHECK(parameter.std().item<double>() == Approx(deviation).epsilon(5 / std::sqrt(2 * n)));
    CHECK(std::abs(parameter.mean().item<double>()) < 5 * deviation / std::sqrt(n));
  }
  for (const std::string name : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
    CHECK_FALSE(
        parameters.at("h.0." + name + ".weight").equal(parameters.at("h.1." + name + ".weight")));
  }
}

TEST_CASE("gpt in deferred form gets the same values", "[models]") {
  const auto expected = parameter_map(*small_gpt(5));
  DeferredValues deferred;
  const auto model = small_gpt(5);
  deferred.hand_over(*model);
  for (const auto& [name, parameter] : parameter_map(*model)) {
    INFO(name);
    CHECK(parameter.is_meta());
    CHECK(model->initial_value(name).equal(expected.at(name)));
  }
}

TEST_CASE("gpt computes what the paper says, and its gradients", "[models]") {
  for (const std::int64_t positions : {kContext, std::int64_t{1}, std::int64_t{3}}) {
    const auto model = small_gpt(1);
    make_uneven(*model);
    model->to(at::kDouble);
    const at::Tensor inputs = some_tokens(0, 3, positions);
    const at::Tensor weights = at::sin(at::arange(3 * positions * kVocabulary, at::kDouble))
                                   .view({3, positions, kVocabulary});
    const Parameters parameters = parameter_map(*model);
    const at::Tensor expected = gpt_by_hand(parameters, kSmallGpt, inputs, no_drop);
    (expected * weights).sum().backward();
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, parameter] : parameters) gradients[name] = parameter.grad().clone();
    model->zero_grad();
    for (const bool is_training : {true, false}) {
      model->train(is_training);
      const at::Tensor outputs = model->forward(inputs);
      CHECK(outputs.sizes() == at::IntArrayRef({3, positions, kVocabulary}));
      CHECK(at::allclose(outputs, expected, 1e-10, 1e-12));
    }
    (model->forward(inputs) * weights).sum().backward();
    for (const auto& [name, parameter] : parameters) {
      INFO(name);
      CHECK(at::allclose(parameter.grad(), gradients.at(name), 1e-9, 1e-12));
    }
  }
}

TEST_CASE("gpt's gradients are those of finite differences", "[models]") {
  const auto model = small_gpt(1);
  make_uneven(*model);
  model->to(at::kDouble);
  const at::Tensor inputs = some_tokens(5, 2);
  next_token_loss(*model, inputs).backward();
  const c10::AutoGradMode no_grad(false);
  constexpr double kStep = 1e-6;
  for (const auto& [name, parameter] : parameter_map(*model)) {
    const at::Tensor flat = parameter.detach().view(-1);
    for (std::int64_t i = 0; i < flat.numel(); i += std::max<std::int64_t>(1, flat.numel() / 3)) {
      INFO(name << " " << i);
      const double before = flat[i].item<double>();
      flat[i] = before + kStep;
      const double above = next_token_loss(*model, inputs).item<double>();
      flat[i] = before - kStep;
      const double below = next_token_loss(*model, inputs).item<double>();
      flat[i] = before;
      CHECK((above - below) / (2 * kStep) ==
            Approx(parameter.grad().view(-1)[i].item<double>()).epsilon(1e-5).margin(1e-8));
    }
  }
}

TEST_CASE("gpt's scores depend on no later token, and on all earlier ones", "[models]") {
  const auto model = small_gpt(2);
  make_uneven(*model);
  const c10::AutoGradMode no_grad(false);
  const at::Tensor inputs = some_tokens(0, 2);
  const at::Tensor before = model->forward(inputs);
  for (std::int64_t changed = 0; changed < kContext; ++changed) {
    const at::Tensor others = inputs.clone();
    others.select(1, changed).add_(1).remainder_(kVocabulary);
    const at::Tensor after = model->forward(others);
    CHECK(after.narrow(1, 0, changed).equal(before.narrow(1, 0, changed)));
    const std::int64_t rest = kContext - changed;
    const at::Tensor is_other = after.ne(before).narrow(1, changed, rest).any(2);
    CHECK(is_other.all().item<bool>());
  }
  CHECK(at::allclose(model->forward(inputs.narrow(1, 0, 2)), before.narrow(1, 0, 2), 1e-4, 1e-5));
}

TEST_CASE("gpt computes in bfloat16", "[models]") {
  const at::Tensor inputs = some_tokens(0, 4);
  std::map<std::string, at::Tensor> gradients;
  at::Tensor expected;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto model = small_gpt(1);
    make_uneven(*model);
    model->to(dtype);
    const at::Tensor outputs = model->forward(inputs);
    CHECK(outputs.scalar_type() == dtype);
    outputs.square().sum().backward();
    if (!expected.defined()) expected = outputs.detach();
    CHECK((outputs - expected).norm().item<double>() < 0.03 * expected.norm().item<double>());
    for (const auto& [name, parameter] : parameter_map(*model)) {
      INFO(name);
      const at::Tensor gradient = parameter.grad().to(at::kFloat);
      const at::Tensor& wide = gradients.emplace(name, gradient).first->second;
      CHECK((gradient - wide).norm().item<double>() < 0.1 * wide.norm().item<double>());
    }
  }
}

TEST_CASE("gpt drops embeddings, shares of attention and residual branches", "[models]") {
  const testing::Quiet quiet;
  GptOptions options = kSmallGpt;
  options.dropout = 0.3;
  std::string problem = "no replica ran";
  REQUIRE(launch(
              [&] {
                const auto model = small_gpt(1, options);
                make_uneven(*model);
                ZeroTrainer trainer(*model, {.seed = 7});
                const Key key = Key(7).fold("dropout").fold(std::uint64_t{0});
                const auto by_hand = [&](const at::Tensor& values, const std::string& path) {
                  return dropout(values, options.dropout,
                                 key.fold(std::uint64_t{0})
                                     .fold(std::uint64_t{0})
                                     .fold(path)
                                     .fold(std::uint64_t{0}));
                };
                const at::Tensor inputs = some_tokens(0, 3);
                const Parameters parameters = parameter_map(*model);
                const at::Tensor dropped = model->forward(inputs);
                const bool drops_right = at::allclose(
                    dropped, gpt_by_hand(parameters, options, inputs, by_hand), 1e-4, 1e-5);
                model->eval();
                const bool keeps_right =
                    at::allclose(model->forward(inputs),
                                 gpt_by_hand(parameters, options, inputs, no_drop), 1e-4, 1e-5);
                problem = drops_right ? (keeps_right ? "" : "evaluation") : "training";
              },
              testing::threads(1, Backend::automatic)) == 0);
  CHECK(problem == "");
}

// The parameters after three steps; all replicas must agree.
struct GptTraining {
  GptOptions model = kSmallGpt;
  ZeroOptions zero = testing::adam(0);
};

Parameters train_gpt(const GptTraining& training, std::int64_t replicas, Backend backend,
                     std::int64_t workers) {
  return testing::result_of_job(testing::threads(replicas, backend, workers), [&] {
    const auto model = small_gpt(1, training.model);
    ZeroTrainer trainer(*model, training.zero);
    for (std::int64_t step = 0; step < 3; ++step) {
      for (std::int64_t m = 0; m < training.zero.accumulate; ++m) {
        const std::int64_t first = 100 * step + 10 * m + 2 * axis_index("data");
        trainer.backward(next_token_loss(*model, some_tokens(first, 2)));
      }
      trainer.step(testing::kRate);
    }
    trainer.check_agreement();
    const auto whole = trainer.whole_parameters();
    return testing::copies(*model);
  });
}

TEST_CASE("gpt trains to the same bits at every stage and placement, its tied weight too",
          "[models]") {
  const testing::Quiet quiet;
  for (const double p : {0.0, 0.2}) {
    GptTraining plain;
    plain.model.dropout = p;
    plain.zero.seed = 3;
    plain.zero.accumulate = 2;
    const Parameters expected = train_gpt(plain, 2, Backend::automatic, 2);
    CHECK(testing::first_difference(train_gpt(plain, 2, Backend::automatic, 1), expected) == "");
    for (const int stage : {1, 2, 3}) {
      for (const bool is_late : {false, true}) {
        if (is_late && stage == 3) continue;
        for (const Overlap overlap : {Overlap::on, Overlap::off}) {
          GptTraining cut = plain;
          cut.zero.stage = stage;
          cut.zero.overlap = overlap;
          cut.zero.late_parameters = is_late;
          INFO("dropout " << p << ", stage " << stage << ", late " << is_late << ", overlap "
                          << static_cast<int>(overlap));
          CHECK(testing::first_difference(train_gpt(cut, 2, Backend::gloo, 2), expected) == "");
          if (overlap == Overlap::off) continue;
          cut.model.recompute = true;
          CHECK(testing::first_difference(train_gpt(cut, 2, Backend::gloo, 2), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("gpt with recompute keeps no activations of its layers", "[models]") {
  GptOptions options{.layers = 5, .heads = 2, .width = 8};
  const auto outputs = [&] { return small_gpt(1, options)->forward(some_tokens(0, 2)); };
  const at::Tensor kept = outputs();
  const std::size_t parameters = small_gpt(1, options)->parameters().size();
  options.recompute = true;
  const at::Tensor recomputed = outputs();
  CHECK(recomputed.equal(kept));
  // Each parameter has a node, and each layer a few around what runs it again.
  CHECK(testing::graph_nodes(recomputed) < parameters + 35);
  CHECK(testing::graph_nodes(kept) > parameters + 100);
}

TEST_CASE("a step of gpt over three replicas is that of one on the whole batch", "[models]") {
  const testing::Quiet quiet;
  GptTraining cut;
  cut.zero.stage = 3;
  cut.zero.optimizer = {.name = "sgd", .lr = testing::kRate};
  const Parameters found = train_gpt(cut, 3, Backend::gloo, 3);
  const auto model = small_gpt(1);
  for (std::int64_t step = 0; step < 3; ++step) {
    model->zero_grad();
    next_token_loss(*model, some_tokens(100 * step, 6)).backward();
    const c10::AutoGradMode no_grad(false);
    double squares = 0;
    for (const auto& [name, parameter] : parameter_map(*model)) {
      squares += parameter.grad().square().sum().item<double>();
    }
    const double factor = std::min(1.0, *cut.zero.clip_norm / (std::sqrt(squares) + 1e-6));
    for (const auto& [name, parameter] : parameter_map(*model)) {
      parameter.sub_(parameter.grad(), testing::kRate * factor);
    }
  }
  const auto start = parameter_map(*small_gpt(1));
  for (const auto& [name, parameter] : parameter_map(*model)) {
    INFO(name);
    CHECK_FALSE(found.at(name).equal(start.at(name)));
    CHECK(at::allclose(found.at(name), parameter, 1e-4, 1e-6));
  }
}

TEST_CASE("gpt says what is wrong with its sizes and inputs", "[models]") {
  const auto refusal = [](const GptOptions& options, std::int64_t context,
                          std::int64_t vocabulary) {
    return testing::message_of<ValueError>(
        [&] { (void)std::make_shared<Gpt>(options, context, vocabulary, Key(0)); });
  };
  CHECK(refusal({.layers = 0}, 1, 1) == "model gpt: layers must be from 1 to 1000, not 0");
  CHECK(refusal({.heads = -1}, 1, 1) == "model gpt: heads must be from 1 to 1000000, not -1");
  CHECK(refusal({.width = 0}, 1, 1) == "model gpt: width must be from 1 to 1000000, not 0");
  CHECK(refusal(kSmallGpt, 0, 1) == "model gpt: context must be at least 1, not 0");
  CHECK(refusal(kSmallGpt, 1, 0) == "model gpt: vocabulary must be at least 1, not 0");
  CHECK(refusal({.heads = 5, .width = 64}, 1, 1) ==
        "model gpt: width must be a multiple of heads, not 64 with 5 heads");
  CHECK(refusal({.dropout = 1.5}, 1, 1) == "model gpt: dropout must be from 0 to 1, not 1.5");
  CHECK(refusal({.dropout = std::nan("")}, 1, 1) ==
        "model gpt: dropout must be a finite number, from 0 to 1, not nan");

  const auto model = small_gpt(0);
  const auto misuse = [&](const at::Tensor& inputs) {
    return testing::message_of<ValueError>([&] { (void)model->forward(inputs); });
  };
  const std::string rule = "model gpt: inputs must be int64 tokens (samples, 1 to 6 positions)";
  CHECK(misuse(at::zeros({2, 7}, at::kLong)) == rule + ", not Long (2, 7)");
  CHECK(misuse(at::zeros({2, 0}, at::kLong)) == rule + ", not Long (2, 0)");
  CHECK(misuse(at::zeros({2}, at::kLong)) == rule + ", not Long (2)");
  CHECK(misuse(at::zeros({2, 3})) == rule + ", not Float (2, 3)");
  CHECK(misuse(at::full({2, 3}, 11, at::kLong)) == "model gpt: tokens must be in [0, 11), not 11");
  CHECK(misuse(at::full({2, 3}, -1, at::kLong)) == "model gpt: tokens must be in [0, 11), not -1");
  CHECK(model->forward(at::zeros({0, 3}, at::kLong)).sizes() ==
        at::IntArrayRef({0, 3, kVocabulary}));
}

}  // namespace
}  // namespace lockstep
