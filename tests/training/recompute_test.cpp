#include "framework/training/recompute.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/training/batch_norm.h"
#include "framework/training/data_parallel.h"
#include "framework/training/dropout.h"
#include "framework/training/process_generator.h"
#include "framework/training/stochastic_depth.h"
#include "framework/training/uncounted_samples.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/random_models.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A residual layer with everything that must do the same twice, a frozen parameter and one that
// nothing uses.
class NoisyLayer : public Block {
 public:
  explicit NoisyLayer(std::int64_t width) {
    linear_ = register_module("linear", torch::nn::Linear(width, width));
    norm_ = register_module("norm", BatchNorm(width));
    drop_ = register_module("drop", Dropout(0.3));
    depth_ = register_module("depth", StochasticDepth(0.3));
    frozen_ = register_parameter("frozen", at::full({width}, 0.9), /*requires_grad=*/false);
    register_parameter("unused", at::ones({2}));
  }
  at::Tensor forward(const at::Tensor& input) override {
    ++runs;
    const at::Tensor dropped = drop_(input);
    activation = c10::weak_intrusive_ptr<c10::TensorImpl>(dropped.getIntrusivePtr());
    const at::Tensor inner = at::tanh(norm_(linear_(dropped))) * frozen_;
    return input + depth_(drop_(inner));
  }

  int runs = 0;
  c10::weak_intrusive_ptr<c10::TensorImpl> activation{
      c10::intrusive_ptr<c10::TensorImpl>::reclaim(nullptr)};

 private:
  torch::nn::Linear linear_{nullptr};
  BatchNorm norm_{nullptr};
  Dropout drop_{nullptr};
  StochasticDepth depth_{nullptr};
  at::Tensor frozen_;
};

// Runs its layers plainly, or recomputes them; others use their inputs, too.
class LayersModel : public SampleModel {
 public:
  explicit LayersModel(bool recomputes) : recomputes_(recomputes) {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), std::make_shared<NoisyLayer>(5)));
    }
    head_ = register_module("head", torch::nn::Linear(5, 3));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor values = inputs;  // requires no gradient
    for (const auto& layer : layers) {
      const at::Tensor output = recomputes_ ? recompute(*layer, values) : (*layer)(values);
      values = output + values * 0.1;
    }
    return head_(values);
  }

  std::vector<std::shared_ptr<NoisyLayer>> layers;

 private:
  bool recomputes_;
  torch::nn::Linear head_{nullptr};
};

std::shared_ptr<LayersModel> layers_model(bool recomputes) {
  return seeded(3, [&] { return std::make_shared<LayersModel>(recomputes); });
}

MakeModel maker(bool recomputes) {
  return [recomputes] { return layers_model(recomputes); };
}

// Two linear maps with a product between them, which has higher derivatives.
class SquareLayer : public Block {
 public:
  SquareLayer() {
    first_ = register_module("first", torch::nn::Linear(4, 4));
    second_ = register_module("second", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& input) override {
    return second_(first_(input).pow(2)) * input;
  }

 private:
  torch::nn::Linear first_{nullptr};
  torch::nn::Linear second_{nullptr};
};

// Runs what it is given.
class FunctionBlock : public Block {
 public:
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  explicit FunctionBlock(Function function) : function_(std::move(function)) {}
  at::Tensor forward(const at::Tensor& input) override { return function_(input); }

 private:
  Function function_;
};

at::Tensor rows(std::int64_t count, double first) {
  return (at::arange(count * 4, at::kFloat) * 0.7 + first).sin().view({count, 4});
}

}  // namespace

TEST_CASE("recomputed blocks give the bits of others at all stages and in all placements") {
  const Quiet quiet;
  const State expected = trained_state_in_pmap(maker(false), 4, {.seed = 5});
  for (const int stage : {0, 1, 2, 3}) {
    ZeroOptions options{.stage = stage, .bucket_mb = 3e-4, .seed = 5};
    INFO("stage " << stage);
    CHECK(first_difference(trained_state_in_pmap(maker(true), 4, options), expected) == "");
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      for (const std::int64_t workers : {4, 1}) {
        for (const bool is_late : {false, true}) {
          INFO(workers << " workers, late parameters " << is_late);
          options.late_parameters = is_late;
          const auto train = [&] { return trained_state(maker(true), options); };
          CHECK(first_difference(result_of_job(threads(4, backend, workers), train), expected) ==
                "");
        }
      }
    }
  }
}

TEST_CASE("a recomputed block runs twice, and keeps no activations in between") {
  pmap(
      [] {
        for (const bool recomputes : {false, true}) {
          const auto model = layers_model(recomputes);
          DataParallel parallel(*model, "i");
          const at::Tensor loss = sample_loss(*model, 0, 0, axis_index("i"));
          for (const auto& layer : model->layers) {
            expect(layer->runs == 1, "another number of runs");
            expect(layer->activation.expired() == recomputes, "activations are kept, or not");
          }
          parallel.backward(loss);
          for (const auto& layer : model->layers) {
            expect(layer->runs == (recomputes ? 2 : 1), "another number of runs");
            const auto counted = layer->named_buffers()["norm.num_batches_tracked"];
            expect(counted.item<std::int64_t>() == 1, "samples are counted twice");
          }
          // Nothing is recorded.
          const c10::AutoGradMode no_grad(false);
          const int before = model->layers[0]->runs;
          (void)sample_loss(*model, 0, 0, axis_index("i"));
          expect(model->layers[0]->runs == before + 1, "another number of runs");
        }
      },
      {.axis_size = 2})();
}

TEST_CASE("at stage 3 over a network recomputed blocks are gathered as others are") {
  const Quiet quiet;
  std::map<bool, std::int64_t> gathered;
  for (const bool recomputes : {false, true}) {
    gathered[recomputes] = result_of_job(threads(2, Backend::gloo), [&] {
      const auto model = layers_model(recomputes);
      ZeroTrainer trainer(*model, {.stage = 3, .overlap = Overlap::off});
      for (int step = 0; step < 3; ++step) {
        trainer.backward(sample_loss(*model, step, 0, axis_index("data")));
        trainer.step(0.01);
        // Their parameters are gone in between.
        expect(model->layers[0]->parameters()[1].is_meta(), "a block is still gathered");
      }
      return trainer.memory().communication;
    });
  }
  CHECK(gathered[true] > 0);
  CHECK(gathered[true] == gathered[false]);
}

TEST_CASE("forwards of several microbatches before their backwards draw what they drew") {
  const auto gradients = [](bool recomputes) {
    return result_of_map(2, [&] {
      const auto model = layers_model(recomputes);
      DataParallel parallel(*model, "i", {.seed = 4});
      const at::Tensor first = sample_loss(*model, 0, 0, axis_index("i"));
      std::optional<UncountedSamples> uncounted;
      if (axis_index("i") == 1) uncounted.emplace();
      const at::Tensor second = sample_loss(*model, 0, 1, axis_index("i"));
      uncounted.reset();
      parallel.accumulate(first);
      parallel.backward(second);
      State result = state_of(*model);
      for (const auto& item : model->named_parameters()) {
        if (item.value().grad().defined()) result["grad/" + item.key()] = item.value().grad();
      }
      return result;
    });
  };
  const State plain = gradients(false);
  CHECK(plain.contains("grad/layer0.linear.weight"));
  CHECK_FALSE(plain.contains("grad/layer0.unused"));
  CHECK(first_difference(gradients(true), plain) == "");
}

TEST_CASE(
    "gradients of a recomputed block: of inputs and parameters, retained, and of second order") {
  const auto block = seeded(1, [] { return std::make_shared<SquareLayer>(); });
  const at::Tensor input = rows(3, 1).set_requires_grad(true);
  std::vector<at::Tensor> wanted = block->parameters();
  wanted.push_back(input);
  const auto gradients = [&](bool recomputes, bool create_graph) {
    const at::Tensor scaled = input * 2;
    const at::Tensor loss =
        ((recomputes ? recompute(*block, scaled) : (*block)(scaled)).pow(2) + scaled).sum();
    auto found = torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/true, create_graph);
    auto again = torch::autograd::grad({loss}, wanted, {}, /*retain_graph=*/true, create_graph);
    found.insert(found.end(), again.begin(), again.end());
    if (!create_graph) return found;
    at::Tensor sum = at::zeros({});
    for (const at::Tensor& gradient : found) sum = sum + gradient.pow(2).sum();
    auto second = torch::autograd::grad({sum}, wanted);
    found.insert(found.end(), second.begin(), second.end());
    return found;
  };
  for (const bool create_graph : {false, true}) {
    const auto expected = gradients(false, create_graph);
    const auto found = gradients(true, create_graph);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      INFO("gradient " << i << ", create_graph " << create_graph);
      const bool are_equal =
          create_graph ? found[i].allclose(expected[i], 1e-5, 1e-5) : found[i].equal(expected[i]);
      CHECK(are_equal);
    }
  }
  // A graph that has been walked is gone.
  const at::Tensor loss = recompute(*block, input).sum();
  loss.backward();
  CHECK_THROWS(loss.backward());
}

TEST_CASE("a recomputed block may return its input or a part of it, and recompute another") {
  const at::Tensor input = rows(3, 1).set_requires_grad(true);
  const auto same = std::make_shared<FunctionBlock>([](const at::Tensor& x) { return x; });
  const auto part =
      std::make_shared<FunctionBlock>([](const at::Tensor& x) { return x.narrow(0, 1, 2); });
  const auto inner = seeded(1, [] { return std::make_shared<SquareLayer>(); });
  const auto outer = std::make_shared<FunctionBlock>(
      [&](const at::Tensor& x) { return recompute(*inner, x * 2); });
  const auto gradient_of = [&](const at::Tensor& output) {
    return torch::autograd::grad({output.pow(2).sum()}, {input})[0];
  };
  CHECK(gradient_of(recompute(*same, input)).equal(gradient_of(input * 1)));
  CHECK(gradient_of(recompute(*part, input)).equal(gradient_of(input.narrow(0, 1, 2))));
  CHECK(gradient_of(recompute(*outer, input)).equal(gradient_of((*inner)(input * 2))));
  CHECK(recompute(*same, input).is_leaf() == false);
  CHECK(input.is_leaf());
}

TEST_CASE("without a trainer, too, a recomputed block drops the same again") {
  const at::Tensor input = at::ones({40}).set_requires_grad(true);
  const SeededInitialization undone(1);  // so that the test leaves no trace
  torch::nn::Dropout drop(0.5);
  const auto drops = std::make_shared<FunctionBlock>(
      [&](const at::Tensor& x) { return drop(x) * at::rand({40}); });
  at::Tensor first, second, gradient;
  std::thread([&] {  // in which no seeded initialization lives
    first = recompute(*drops, input);
    second = recompute(*drops, input);
    gradient = torch::autograd::grad({first.sum()}, {input})[0];
  })
      .join();
  CHECK_FALSE(first.equal(second));
  CHECK(gradient.equal(first));
}

TEST_CASE("what can't be recomputed says so") {
  const at::Tensor input = rows(3, 1).set_requires_grad(true);
  const auto identity = [](const at::Tensor& x) { return x; };
  FunctionBlock alone(identity);
  CHECK_THAT(message_of<ValueError>([&] { (void)recompute(alone, input); }),
             ContainsSubstring("recompute: the block must belong to a shared_ptr"));
  const auto whole =
      std::make_shared<FunctionBlock>([](const at::Tensor& x) { return x.to(at::kLong); });
  CHECK_THAT(message_of<ValueError>([&] { (void)recompute(*whole, input); }),
             ContainsSubstring("recompute: the block's result must be floating, not Long"));

  const auto block = seeded(1, [] { return std::make_shared<SquareLayer>(); });
  const at::Tensor loss = recompute(*block, input).sum();
  {
    const c10::AutoGradMode no_grad(false);
    block->parameters()[0].mul_(2);
  }
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("modified by an inplace operation"));

  // Draws one key more, or less, in its second run.
  for (const int change : {1, -1}) {
    pmap(
        [&] {
          const auto model = layers_model(false);
          DataParallel parallel(*model, "i");
          int draws = 2;
          Dropout drop(0.5);
          const auto unsteady = std::make_shared<FunctionBlock>([&](at::Tensor x) {
            for (int i = 0; i < draws; ++i)
              x = model->layers[0]->named_children()["drop"]->as<Dropout>()->forward(x);
            draws += change;
            return x;
          });
          const at::Tensor own = input.detach().clone().set_requires_grad(true);
          const at::Tensor sum = recompute(*unsteady, own).sum();
          expect_contains(message_of<Error>([&] { sum.backward(); }),
                          "a block that is recomputed has drawn more keys, or fewer, than in its "
                          "first run");
        },
        {.axis_size = 1})();
  }
}
