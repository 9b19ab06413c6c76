#include <functional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/embedding.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/data_parallel.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

// loss.backward(), autograd::grad and other walks of the graph beside the trainers' own.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

at::Tensor own_loss(OddModel& model, std::int64_t step) {
  return mean_loss(model, samples(step, axis_index("data") * kBatch, kBatch));
}

Parameters gradients_of(const OddModel& model) {
  Parameters gradients;
  for (const auto& item : model.named_parameters()) {
    if (item.value().grad().defined()) gradients.emplace(item.key(), item.value().grad().clone());
  }
  return gradients;
}

std::vector<at::Tensor> trained_tensors(const OddModel& model) {
  std::vector<at::Tensor> tensors;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad() && item.key() != "same_scale") tensors.push_back(item.value());
  }
  return tensors;
}

// Trains a model by ZeroTrainer::backward alone, and another by `backward`, at all stages.
void check_same_training(
    const std::function<void(ZeroTrainer&, OddModel&, std::int64_t step)>& backward) {
  for (const int stage : {0, 1, 2, 3}) {
    OddModel plain;
    OddModel model;
    ZeroTrainer reference(plain, adam(stage));
    ZeroTrainer trainer(model, adam(stage));
    for (std::int64_t step = 0; step < 3; ++step) {
      reference.backward(own_loss(plain, step));
      (void)reference.step(kRate);
      backward(trainer, model, step);
      (void)trainer.step(kRate);
    }
    const auto whole = trainer.whole_parameters();
    const auto other_whole = reference.whole_parameters();
    expect(first_difference(copies(model), copies(plain)).empty(),
           "stage " + std::to_string(stage) + ": other parameters");
  }
}

}  // namespace

TEST_CASE("loss.backward() averages as DataParallel::backward does, and accumulates as autograd") {
  in_every_placement(3, [] {
    OddModel plain;
    OddModel model;
    DataParallel explicit_form(plain, "data");
    const DataParallel parallel(model, "data");
    for (std::int64_t step = 0; step < 3; ++step) {
      clear_gradients(plain);
      clear_gradients(model);
      explicit_form.backward(own_loss(plain, step));
      own_loss(model, step).backward();
      expect(!gradients_of(model).empty(), "no gradients");
      expect(first_difference(gradients_of(plain), gradients_of(model)).empty(), "other gradients");
    }
    // Zeros in place, as optimizers' zero_grad() leaves them, then two backwards.
    for (const at::Tensor& parameter : model.parameters()) {
      if (parameter.grad().defined()) parameter.grad().zero_();
    }
    clear_gradients(plain);
    own_loss(model, 7).backward();
    own_loss(model, 8).backward();
    explicit_form.accumulate(own_loss(plain, 7));
    explicit_form.backward(own_loss(plain, 8));
    for (const auto& [name, gradient] : gradients_of(plain)) {
      expect(gradient.allclose(gradients_of(model).at(name), 1e-5, 1e-7), "sum of " + name);
    }
  });
}

TEST_CASE("a parameter that no replica uses has no gradient, and keeps what it had before") {
  in_every_placement(2, [] {
    const auto leaf = [](double value) { return at::full({3}, value).set_requires_grad(true); };
    const std::vector<at::Tensor> leaves{leaf(1), leaf(2), leaf(3)};
    const DataParallel parallel(leaves, "data");
    const auto index = static_cast<double>(axis_index("data"));
    at::Tensor loss = (leaves[0] * (1 + index)).sum();
    if (index == 1) loss = loss + (leaves[1] * 4).sum();
    loss.backward();
    expect(leaves[0].grad().equal(at::full({3}, 1.5)), "the mean");
    expect(leaves[1].grad().equal(at::full({3}, 2.0)), "used by one replica");
    expect(!leaves[2].grad().defined(), "used by none");
    (leaves[2] * 5).sum().backward();
    expect(leaves[0].grad().equal(at::full({3}, 1.5)), "kept");
    expect(leaves[2].grad().equal(at::full({3}, 5.0)), "used now");
  });
}

TEST_CASE("loss.backward() trains as ZeroTrainer::backward does") {
  in_every_placement(3, [] {
    check_same_training([](ZeroTrainer& /*trainer*/, OddModel& model, std::int64_t step) {
      own_loss(model, step).backward();
    });
  });
}

TEST_CASE("a backward that fails leaves an error, not half an average") {
  in_every_placement(2, [] {
    const at::Tensor leaf = at::ones({3}).set_requires_grad(true);
    DataParallel parallel(std::vector{leaf}, "data");
    expect_contains(message_of<ValueError>([&] { parallel.backward(leaf * 2); }),
                    "DataParallel::backward over 'data' (plain_backward_test.cpp:");
    expect_contains(message_of<ValueError>([&] { parallel.backward(leaf * 2); }),
                    "the loss has 3 elements; it must have one");
    expect_contains(message_of<ValueError>([&] { parallel.backward(at::ones({})); }),
                    "the loss does not depend on any parameter");
    class Words : public torch::nn::Module {
     public:
      torch::nn::Embedding words = register_module(
          "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)));
    };
    Words model;
    DataParallel sparse(model, "data");
    expect_contains(message_of<ValueError>(
                        [&] { sparse.backward(model.words(at::ones({2}, at::kLong)).sum()); }),
                    "parameter 'words.weight' has a gradient that is not dense");
    const at::Tensor moved = at::ones({3}).set_requires_grad(true);
    const DataParallel other(std::vector{moved}, "data");
    moved.set_data(at::ones({3}, at::kDouble));
    expect_contains(message_of<ValueError>([&] { moved.sum().backward(); }),
                    "parameter 'leaf 0' has changed its dtype since its trainer was made");
  });
}

TEST_CASE("replicas whose parameters have come to differ are told by name") {
  in_every_placement(2, [] {
    OddModel model;
    DataParallel parallel(model, "data");
    parallel.check_agreement();
    const c10::AutoGradMode no_grad(false);
    if (axis_index("data") == 1) model.named_parameters()["shift"].add_(1);
    expect_contains(message_of<Error>([&] { parallel.check_agreement(); }),
                    "parameter 'shift': replica 1 differs from replica 0");
  });
}

TEST_CASE("autograd::grad beside a trainer's backward is the replica's own gradient") {
  in_every_placement(2, [] {
    check_same_training([](ZeroTrainer& trainer, OddModel& model, std::int64_t step) {
      const at::Tensor inputs = samples(step, axis_index("data") * kBatch, kBatch).inputs;
      const at::Tensor sensitive = inputs.clone().set_requires_grad(true);
      const at::Tensor before =
          torch::autograd::grad({model.forward(sensitive).sum()}, {sensitive})[0];
      const at::Tensor loss = own_loss(model, step);
      (void)torch::autograd::grad({loss}, {model.named_parameters()["scale"]}, {},
                                  /*retain_graph=*/true);
      trainer.backward(loss);
      expect(before.abs().sum().item<double>() > 0, "no gradient");
    });
  });
}

TEST_CASE("a penalty on gradients, and a graph that is walked twice, at all stages") {
  in_every_placement(2, [] {
    Parameters first;
    for (const int stage : {0, 1, 2, 3}) {
      OddModel model;
      ZeroOptions options = adam(stage);
      options.accumulate = 2;
      ZeroTrainer trainer(model, options);
      for (std::int64_t step = 0; step < 2; ++step) {
        const at::Tensor inputs = samples(step, axis_index("data") * kBatch, kBatch)
                                      .inputs.clone()
                                      .set_requires_grad(true);
        const at::Tensor output = model.forward(inputs).square().mean();
        const at::Tensor slope =
            torch::autograd::grad({output}, {inputs}, {}, /*retain_graph=*/true,
                                  /*create_graph=*/true)[0];
        const at::Tensor loss = output + slope.square().sum();
        trainer.backward(loss, {.retain_graph = true});
        trainer.backward(loss * 0.5);
        (void)trainer.step(kRate);
      }
      const auto whole = trainer.whole_parameters();
      if (stage == 0) first = copies(model);
      const std::string different = first_difference(first, copies(model));
      expect(different.empty(), "stage " + std::to_string(stage) + ": other " + different);
    }
  });
}

TEST_CASE("gradients are read between backward and step, and written where they are whole") {
  in_every_placement(2, [] {
    for (const int stage : {0, 1, 2, 3}) {
      OddModel plain;
      DataParallel reference(plain, "data");
      reference.backward(own_loss(plain, 0));
      OddModel model;
      ZeroTrainer trainer(model, adam(stage));
      expect_contains(message_of<ValueError>([&] {
                        trainer.visit_gradients([](const std::string&, const at::Tensor&) {});
                      }),
                      "ZeroTrainer::visit_gradients over 'data' (plain_backward_test.cpp:");
      trainer.backward(own_loss(model, 0));
      std::size_t visited = 0;
      trainer.visit_gradients([&](const std::string& name, const at::Tensor& gradient) {
        ++visited;
        expect(gradient.equal(plain.named_parameters()[name].grad()), "the gradient of " + name);
      });
      expect(visited == trained_tensors(model).size(), "not all were visited");
      (void)trainer.step(kRate);
      for (const at::Tensor& parameter : model.parameters()) {
        expect(!parameter.grad().defined(), "a gradient after the step");
      }
    }
  });
}

TEST_CASE("a gradient that the program sets in place of the trainer's is refused") {
  in_every_placement(2, [] {
    for (const int stage : {0, 1, 2, 3}) {
      OddModel model;
      ZeroTrainer trainer(model, adam(stage));
      trainer.backward(own_loss(model, 0));
      model.named_parameters()["scale"].mutable_grad() = at::ones({1});
      expect_contains(message_of<ValueError>([&] { (void)trainer.step(kRate); }),
                      "the .grad() of parameter 'scale' is not the trainer's");
    }
    OddModel model;
    ZeroTrainer trainer(model, adam(0));
    trainer.backward(own_loss(model, 0));
    const at::Tensor gradient = model.named_parameters()["scale"].grad();
    if (!gradient.defined()) return;  // replicas that take turns
    gradient.mul_(axis_index("data") == 0 ? 0.5 : 0.25);
    expect_contains(message_of<Error>([&] { (void)trainer.step(kRate); }),
                    "'scale': replica 1 differs from replica 0");
  });
}

TEST_CASE("shards end as ordinary parameters, and are not read where they are not there") {
  in_every_placement(2, [] {
    OddModel model;
    Parameters whole_values;
    {
      ZeroTrainer trainer(model, adam(3));
      train_step(trainer, model, 0, 1, "data");
      {
        const auto whole = trainer.whole_parameters();
        whole_values = copies(model);
      }
      const at::Tensor part = model.named_parameters()["part1.weight"];
      if (part.is_meta()) {
        expect(message_of<c10::Error>([&] { (void)part.sum().item<double>(); }) != "no error",
               "a parameter in shards was read");
        expect_contains(message_of<ValueError>([&] { trainer.backward((part * 2).sum()); }),
                        "the loss depends on parameters of a Block that were not there");
      }
      {
        const auto whole = trainer.whole_parameters();
        if (part.is_meta()) throw Error("not there");
        trainer.edit_parameters([&] { part.mul_(1); });
        expect(!part.is_meta(), "an edit has dropped what whole_parameters() keeps");
      }
      trainer.release_parameters();
      expect_contains(message_of<ValueError>([&] { trainer.backward(own_loss(model, 1)); }),
                      "after release_parameters()");
    }
    expect(first_difference(copies(model), whole_values).empty(), "other values");
    own_loss(model, 1).backward();  // an ordinary module
  });
}
