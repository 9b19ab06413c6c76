#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/training/data_parallel.h"
#include "framework/training/sharded_optimizer.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

// What a program of one's own does with parameters beside the trainer's calls: it counts, or it is
// an error; nothing of it is lost without a word.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const std::vector<int> kStages{0, 1, 2, 3};

// A model without Blocks, which stage 3 leaves whole.
class Line : public torch::nn::Module {
 public:
  Line() = default;
  at::Tensor loss(double factor) const { return (w * w * factor).sum() + (b * factor).sum(); }
  at::Tensor w = register_parameter("w", at::full({7}, 2.0));
  at::Tensor b = register_parameter("b", at::full({3}, 1.0));
};

double own_factor() {
  return 1.0 + static_cast<double>(axis_index("data"));
}

// The gradient of w's loss is 2 w factor, factors average to this.
double mean_factor() {
  return (1.0 + static_cast<double>(axis_size("data"))) / 2;
}

ZeroOptions sgd(int stage) {
  return {.stage = stage, .optimizer = {.name = "sgd"}};
}

void step(ZeroTrainer& trainer, const Line& model) {
  trainer.backward(model.loss(own_factor()));
  (void)trainer.step(0.125);
}

// Writes into a parameter, of which its trainer is not told.
void halve(const at::Tensor& parameter) {
  const c10::AutoGradMode no_grad(false);
  parameter.mul_(0.5);
}

void expect_values(const Line& model, double w, double b) {
  expect(model.w.allclose(at::full({7}, w)),
         "w is " + std::to_string(model.w[0].item<double>()) + ", not " + std::to_string(w));
  expect(model.b.allclose(at::full({3}, b)),
         "b is " + std::to_string(model.b[0].item<double>()) + ", not " + std::to_string(b));
}

}  // namespace

TEST_CASE("values that a program replaces alike on all replicas are what is trained from then on") {
  in_every_placement(3, [] {
    for (const int stage : kStages) {
      Line model;
      ZeroTrainer trainer(model, sgd(stage));
      step(trainer, model);
      expect_values(model, 2 - 0.125 * 2 * 2 * mean_factor(), 1 - 0.125 * mean_factor());
      model.w.set_data(at::full({7}, 4.0));
      step(trainer, model);
      expect_values(model, 4 - 0.125 * 2 * 4 * mean_factor(), 1 - 0.25 * mean_factor());

      std::stringstream archive;
      torch::save(std::make_shared<Line>(), archive);
      auto loaded = std::make_shared<Line>();
      torch::load(loaded, archive);
      model.w.set_data(loaded->w.detach());
      model.b.set_data(loaded->b.detach());
      step(trainer, model);
      expect_values(model, 2 - 0.125 * 2 * 2 * mean_factor(), 1 - 0.125 * mean_factor());
    }
  });
}

TEST_CASE("values replaced twice, of a tensor that replicas share, or whose old ones are kept") {
  // Replica threads of one process may even give the same tensor to their parameters.
  const at::Tensor given = at::full({7}, 4.0);
  in_every_placement(3, [given] {
    for (const int stage : kStages) {
      Line model;
      ZeroTrainer trainer(model, sgd(stage));
      step(trainer, model);
      const at::Tensor old = model.b.data();
      const at::Tensor old_values = old.clone();
      for (int i = 0; i < 2; ++i) model.b.set_data(at::full({3}, 1.0 + i));
      model.w.set_data(given);
      step(trainer, model);
      expect_values(model, 4 - 0.125 * 2 * 4 * mean_factor(), 2 - 0.125 * mean_factor());
      expect(old.equal(old_values), "old values were written");
      expect(given.equal(at::full({7}, 4.0)), "what was given was written");
    }
  });
}

TEST_CASE("values that replicas replace apart are an error with parameter and replicas") {
  in_every_placement(3, [] {
    for (const bool only_one : {true, false}) {
      Line model;
      ZeroTrainer trainer(model, sgd(1));
      step(trainer, model);
      const std::int64_t replica = axis_index("data");
      if (!only_one || replica == 1) {
        model.b.set_data(at::full({3}, replica == 1 ? 5.0 : 6.0));
      }
      trainer.backward(model.loss(1));
      const std::string message = message_of<Error>([&] { (void)trainer.step(0.125); });
      expect_contains(message, "ZeroTrainer::step over 'data' (moved_parameters_test.cpp:");
      expect_contains(message,
                      "parameter 'b' was given other values on replica 1 than on replica 0");
    }
  });
}

TEST_CASE("another dtype or shape needs another trainer") {
  in_every_placement(2, [] {
    Line model;
    ZeroTrainer trainer(model, sgd(0));
    step(trainer, model);
    model.to(at::kDouble);
    const std::string message = message_of<ValueError>([&] { trainer.backward(model.loss(1)); });
    expect_contains(message, "parameter 'w' has become [7] Double on cpu; it was [7] Float");
  });
}

TEST_CASE("a program writes parameters together with the other replicas") {
  in_every_placement(3, [] {
    for (const int stage : kStages) {
      Line model;
      ZeroTrainer trainer(model, sgd(stage));
      step(trainer, model);
      halve(model.w);
      const std::string refused = message_of<ValueError>([&] { trainer.backward(model.loss(1)); });
      expect_contains(refused, "ZeroTrainer::backward over 'data' (moved_parameters_test.cpp:");
      expect_contains(refused, "parameter 'w' was written to since the last step");
      expect_contains(refused, "edit_parameters()");
      ZeroOptions two = sgd(stage);
      two.accumulate = 2;
      Line between;
      ZeroTrainer accumulates(between, two);
      accumulates.backward(between.loss(1));
      barrier("data");  // replicas may have w in common
      halve(between.w);
      expect_contains(message_of<ValueError>([&] { accumulates.backward(between.loss(1)); }),
                      "parameter 'w' was written to since the last step");
      Line other;
      ZeroTrainer goes_on(other, sgd(stage));
      step(goes_on, other);
      goes_on.backward(other.loss(1));
      other.b.data().mul_(0.5);  // which LibTorch's counters do not count
      expect_contains(message_of<ValueError>([&] { (void)goes_on.step(0.1); }),
                      "parameter 'b' was written to since the last step");
    }
    for (const int stage : kStages) {
      Line model;
      ZeroTrainer trainer(model, sgd(stage));
      for (int round = 0; round < 2; ++round) {  // before and after buckets are made
        trainer.edit_parameters([&] {
          model.w.fill_(3);
          model.w.add_(1);
          model.b.data().fill_(1);
        });
        expect_values(model, 4, 1);
        step(trainer, model);
        expect_values(model, 4 - 0.125 * 2 * 4 * mean_factor(), 1 - 0.125 * mean_factor());
      }
      model.b.set_data(at::full({3}, 8.0));
      trainer.edit_parameters([&] { model.b.mul_(0.5); });  // of what was replaced before
      expect(model.b.allclose(at::full({3}, 4.0)), "an edit has lost what was replaced");
      const double w = model.w[0].item<double>();
      const std::string thrown = message_of<ValueError>([&] {
        trainer.edit_parameters([&] {
          model.w.zero_();
          throw ValueError("no");
        });
      });
      expect(thrown == "no", thrown);
      expect(model.w[0].item<double>() == w, "an edit that throws has changed w");
      trainer.check_agreement();
    }
  });
}

TEST_CASE("edits that differ are an error") {
  in_every_placement(3, [] {
    Line model;
    ZeroTrainer trainer(model, sgd(1));
    step(trainer, model);
    const std::string message = message_of<Error>(
        [&] { trainer.edit_parameters([&] { model.w.mul_(axis_index("data") == 2 ? 2 : 3); }); });
    expect_contains(message, "ZeroTrainer::edit_parameters over 'data'");
    expect_contains(message, "parameter 'w' was given other values on replica 2 than on replica 0");
  });
}

TEST_CASE("a parameter has one trainer at a time, and is the replica's own when that ends") {
  in_every_placement(3, [] {
    Line model;
    auto trainer = std::make_unique<ZeroTrainer>(model, sgd(1));
    step(*trainer, model);
    const std::string second =
        message_of<ValueError>([&] { const ZeroTrainer other(model, sgd(1)); });
    expect_contains(second, "parameter 'w' belongs to a ZeroTrainer that is still alive");
    expect_contains(message_of<ValueError>([&] { const DataParallel other(model, "data"); }),
                    "parameter 'w' belongs to a ZeroTrainer that is still alive");
    const double w = model.w[0].item<double>();
    trainer.reset();
    expect(model.w[0].item<double>() == w, "the trainer's end has changed w");
    const c10::AutoGradMode no_grad(false);
    barrier("data");
    model.w.add_(own_factor());
    barrier("data");
    expect(model.w.allclose(at::full({7}, w + own_factor())), "another replica has written w");
    model.w.fill_(2);
    model.b.fill_(1);
    const c10::AutoGradMode grad(true);
    ZeroTrainer next(model, sgd(2));
    step(next, model);
    expect_values(model, 2 - 0.125 * 2 * 2 * mean_factor(), 1 - 0.125 * mean_factor());
  });
}

TEST_CASE("the parameters of a sharded optimizer follow the same rule") {
  in_every_placement(2, [] {
    Line model;
    {
      ShardedOptimizer optimizer(model.parameters(), [](std::vector<at::Tensor> own) {
        return std::make_unique<torch::optim::SGD>(std::move(own), 0.125);
      });
      DataParallel parallel(model, "data");
      parallel.backward(model.loss(own_factor()));
      optimizer.step();
      expect_values(model, 2 - 0.125 * 2 * 2 * mean_factor(), 1 - 0.125 * mean_factor());
      model.w.set_data(at::full({7}, 4.0));
      clear_gradients(model);
      parallel.backward(model.loss(own_factor()));
      optimizer.step();
      expect_values(model, 4 - 0.125 * 2 * 4 * mean_factor(), 1 - 0.25 * mean_factor());
      optimizer.edit_parameters([&] { model.b.fill_(1); });
      parallel.backward(model.loss(own_factor()));
      halve(model.w);
      expect_contains(message_of<ValueError>([&] { optimizer.step(); }),
                      "parameter 'leaf 0' was written to since the last step");
    }
    const c10::AutoGradMode no_grad(false);
    model.w.fill_(own_factor());
    barrier("data");
    expect(model.w.allclose(at::full({7}, own_factor())), "another replica has written w");
  });
}

TEST_CASE("what shares a parameter's memory goes along, or is refused by name") {
  in_every_placement(2, [] {
    Line model;
    const at::Tensor kept = model.w.detach().view({7, 1});  // such as a module keeps
    ZeroTrainer trainer(model, sgd(1));
    step(trainer, model);
    expect(kept.flatten().equal(model.w.detach()), "a view was left behind");

    Line tied;
    tied.register_parameter("other", at::zeros({7})).set_data(tied.w.detach());
    expect_contains(message_of<ValueError>([&] {
                      ZeroTrainer refused(tied, sgd(3));
                      step(refused, tied);
                    }),
                    "parameters 'w' and 'other' share memory and are two tensors");

    Line part;
    const at::Tensor whole = at::ones({8});
    part.w.set_data(whole.narrow(0, 0, 7));
    expect_contains(message_of<ValueError>([&] {
                      ZeroTrainer refused(part, sgd(3));
                      step(refused, part);
                    }),
                    "parameter 'w' is a part, or another order, of memory that other tensors use");
  });
}

TEST_CASE("models that differ are told by parameter, before training") {
  in_every_placement(3, [] {
    Line model;
    if (axis_index("data") == 1) model.register_parameter("more", at::ones({2}));
    expect_contains(message_of<ValueError>([&] { const ZeroTrainer trainer(model, sgd(0)); }),
                    "the replicas have different models: parameter 2 is none on replica 0 and "
                    "'more' (2) Float on replica 1");
    class Reversed : public torch::nn::Module {
     public:
      explicit Reversed(bool reversed) {
        for (const char* name : {reversed ? "b" : "a", reversed ? "a" : "b"}) {
          register_parameter(name, at::ones({2}));
        }
      }
    };
    Reversed reversed(axis_index("data") == 2);
    expect_contains(message_of<ValueError>([&] { const DataParallel parallel(reversed, "data"); }),
                    "parameter 0 is 'a' (2) Float on replica 0 and 'b' (2) Float on replica 2");
  });
}

TEST_CASE(
    "a parameter that is unfrozen or registered late, and an embedding that writes, are refused by "
    "name") {
  in_every_placement(2, [] {
    Line model;
    {
      model.b.set_requires_grad(false);
      ZeroTrainer trainer(model, sgd(0));
      model.b.set_requires_grad(true);
      expect_contains(message_of<ValueError>([&] { trainer.backward(model.loss(1)); }),
                      "parameter 'b' required no gradient when its trainer was made");
    }
    {
      model.b.set_requires_grad(false);
      DataParallel parallel(model, "data");
      model.b.set_requires_grad(true);
      expect_contains(message_of<ValueError>([&] { model.loss(1).backward(); }),
                      "parameter 'b' required no gradient when its trainer was made");
    }
    {
      ZeroTrainer trainer(model, sgd(0));
      model.register_parameter("constant", at::ones({2}), /*requires_grad=*/false);
      trainer.backward(model.loss(1));
      trainer.step(0.1);
      model.register_parameter("late", at::ones({2}));
      expect_contains(message_of<ValueError>([&] { trainer.backward(model.loss(1)); }),
                      "parameter 'late' was registered after its trainer was made");
    }
    {
      DataParallel parallel(model, "data");
      model.register_parameter("later", at::ones({2}));
      expect_contains(message_of<ValueError>([&] { model.loss(1).backward(); }),
                      "parameter 'later' was registered after its trainer was made");
    }
    class Words : public torch::nn::Module {
     public:
      Words() {
        register_module("words",
                        torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).max_norm(1.0)));
      }
    };
    Words words;
    expect_contains(message_of<ValueError>([&] { const ZeroTrainer other(words, sgd(0)); }),
                    "module 'words' is an embedding with max_norm");
  });
}
