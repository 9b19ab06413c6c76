#include "framework/training/module_buffers.h"

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "framework/training/batch_norm.h"
#include "framework/training/data_parallel.h"
#include "framework/training/dropout.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/random_models.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A parameter, and buffers of many kinds that start as the replica's index says.
class Holder : public torch::nn::Module {
 public:
  explicit Holder(double index) {
    weight = register_parameter("weight", at::ones({1}));
    floats = register_buffer("floats", at::full({2, 3}, index));
    doubles = register_buffer("doubles", at::full({3}, index, at::kDouble));
    halves = register_buffer("halves", at::full({}, index, at::kBFloat16));
    numbers = register_buffer("numbers", at::full({2}, index).to(at::kLong));
    flags = register_buffer("flags", at::full({2}, index != 0));
    columns = register_buffer("columns", at::full({4, 2}, index).t());
    same_floats = register_buffer("same_floats", floats);
    register_buffer("empty", at::empty({0}));
    register_buffer("undefined", at::Tensor());
    constant = register_buffer("constant", at::tensor({0.1, -kInfinity, -0.0, 1e-45}));
  }
  at::Tensor loss() { return weight.sum(); }

  at::Tensor weight, floats, doubles, halves, numbers, flags, columns, same_floats, constant;
};

void expect_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  if (!actual.equal(expected)) throw Error(what);
}

void expect_constant(const Holder& holder) {
  const at::Tensor expected = at::tensor({0.1, -kInfinity, -0.0, 1e-45});
  expect_equal(holder.constant.view(at::kInt), expected.view(at::kInt), "another constant");
}

// Each replica's buffers grow by its index.
void move_apart(Holder& holder, double index) {
  for (at::Tensor* const buffer :
       {&holder.floats, &holder.doubles, &holder.halves, &holder.columns}) {
    buffer->add_(index);
  }
  holder.numbers.add_(static_cast<std::int64_t>(index));
  holder.flags.fill_(index == 0);
}

void expect_all(const Holder& holder, double floating, double whole, bool flag) {
  expect_equal(holder.floats, at::full({2, 3}, floating), "another floats");
  expect_equal(holder.doubles, at::full({3}, floating, at::kDouble), "another doubles");
  expect_equal(holder.halves, at::full({}, floating, at::kBFloat16), "another halves");
  expect_equal(holder.columns, at::full({2, 4}, floating), "another columns");
  expect_equal(holder.numbers, at::full({2}, whole).to(at::kLong), "another numbers");
  expect_equal(holder.flags, at::full({2}, flag), "another flags");
  expect_constant(holder);
}

}  // namespace

TEST_CASE("buffers start as replica 0's, and each step gives all replicas the same ones") {
  for (const Buffers rule : {Buffers::mean, Buffers::first}) {
    const double mean = rule == Buffers::mean ? 1.5 : 0;  // of the indices of four replicas
    pmap(
        [&] {
          const auto index = static_cast<double>(axis_index("i"));
          Holder holder(index);
          DataParallel parallel(holder, "i", {.buffers = rule});
          expect_all(holder, 0, 0, false);
          parallel.check_agreement();
          for (int step = 1; step <= 3; ++step) {
            move_apart(holder, index);
            parallel.accumulate(holder.loss());
            move_apart(holder, index);
            parallel.backward(holder.loss());
            expect_all(holder, 2 * mean * step, 0, true);
            parallel.check_agreement();
          }

          Holder own(index);
          ZeroTrainer trainer(own, {.axis_name = "i", .buffers = rule});
          expect_all(own, 0, 0, false);
          move_apart(own, index);
          trainer.backward(own.loss());
          trainer.step(0.1);
          expect_all(own, mean, 0, true);
          trainer.check_agreement();
        },
        {.axis_size = 4})();
  }
}

TEST_CASE("after loss.backward(), too, buffers are equal and Dropout goes on") {
  pmap(
      [] {
        const auto index = static_cast<double>(axis_index("i"));
        Holder holder(index);
        DataParallel parallel(holder, "i");
        torch::nn::Sequential net(torch::nn::Linear(50, 50), Dropout(0.5),
                                  torch::nn::BatchNorm1d(50));
        ZeroTrainer trainer(*net, {.axis_name = "i", .local_batch_norm = true});
        at::Tensor last;
        for (int step = 1; step <= 3; ++step) {
          move_apart(holder, index);
          holder.loss().backward();
          expect_all(holder, 0.5 * step, 0, true);
          const at::Tensor output = net[1]->as<Dropout>()->forward(at::ones({50}));
          if (last.defined() && output.equal(last)) throw Error("the same mask");
          last = output;
          net->forward(at::full({4, 50}, index + step)).sum().backward();
          trainer.step(0.1);
          trainer.check_agreement();
        }
      },
      {.axis_size = 2})();
}

TEST_CASE("what replicas change alike keeps its bits, and its version") {
  for (const std::int64_t replicas : {1, 3, 7}) {
    pmap(
        [] {
          Holder holder(0.1);
          DataParallel parallel(holder, "i");
          for (int step = 1; step <= 5; ++step) {
            holder.doubles.add_(0.1);
            const at::Tensor expected = holder.doubles.clone();
            const auto version = holder.constant._version();
            parallel.backward(holder.loss());
            expect_equal(holder.doubles, expected, "other doubles");
            expect_constant(holder);
            if (holder.constant._version() != version) throw Error("the constant was written");
          }
        },
        {.axis_size = replicas})();
  }
}

TEST_CASE("a step that is skipped leaves no trace in buffers") {
  in_every_placement(2, [] {
    const auto index = static_cast<double>(axis_index("data"));
    Holder holder(0);
    ZeroTrainer trainer(holder, {.accumulate = 2, .non_finite = NonFinite::skip});
    const auto step = [&](double factor) {
      for (int microbatch = 0; microbatch < 2; ++microbatch) {
        move_apart(holder, index);
        trainer.backward(holder.loss() * factor);
      }
      return trainer.step(0.1).skipped;
    };
    expect(step(kInfinity), "not skipped");
    expect_all(holder, 0, 0, false);
    expect(!step(1), "skipped");
    expect_all(holder, 1, 0, true);
    holder.register_buffer("late", at::full({2}, index));
    expect(step(kInfinity), "not skipped");
    expect_all(holder, 1, 0, true);
    expect_equal(holder.named_buffers()["late"], at::full({2}, 0.5), "not synchronized");
    // Written between steps.
    trainer.edit_parameters([&] { holder.floats.fill_(5), holder.numbers.fill_(7); });
    expect(step(kInfinity), "not skipped");
    expect_equal(holder.floats, at::full({2, 3}, 5.0), "what was edited is lost");
    expect_equal(holder.numbers, at::full({2}, 7, at::kLong), "what was edited is lost");
    trainer.check_agreement();
  });
}

TEST_CASE("a step that is skipped leaves no trace in BatchNorm") {
  in_every_placement(2, [] {
    const auto index = static_cast<double>(axis_index("data"));
    BatchNorm norm(3);
    torch::nn::Sequential net(norm, torch::nn::Linear(3, 1));
    ZeroTrainer trainer(*net, {.non_finite = NonFinite::skip});
    const auto step = [&](double factor) {
      const at::Tensor inputs = at::full({2, 3}, index);
      trainer.backward(net->forward(inputs).sum() * factor);
      return trainer.step(0.1).skipped;
    };
    expect(!step(1), "skipped");
    const State before = state_of(*net);
    expect(step(kInfinity), "not skipped");
    expect(first_difference(state_of(*net), before).empty(), "a trace");
    expect(norm->num_batches_tracked.item<std::int64_t>() == 1, "another number");
    expect(!step(1), "skipped");
    expect(norm->num_batches_tracked.item<std::int64_t>() == 2, "another number");
  });
}

TEST_CASE("a buffer that is registered in the first forward is one of them") {
  pmap(
      [] {
        const auto index = static_cast<double>(axis_index("i"));
        torch::nn::Linear linear(2, 2);
        DataParallel parallel(*linear, "i");
        linear->register_buffer("late", at::full({2}, index));
        parallel.backward(linear->forward(at::ones({2, 2})).sum());
        expect_equal(linear->named_buffers()["late"], at::full({2}, 1.0), "not synchronized");
      },
      {.axis_size = 3})();
}

TEST_CASE("buffers that fall apart are named") {
  pmap(
      [] {
        Holder holder(0);
        DataParallel parallel(holder, "i");
        Holder own(0);
        ZeroTrainer trainer(own, {.axis_name = "i"});
        if (axis_index("i") != 0) {
          holder.numbers.add_(1);
          own.doubles.add_(1);
        }
        const std::string first = message_of<Error>([&] { parallel.check_agreement(); });
        expect(
            first ==
                "buffer 'numbers': replicas 1, 2 differ from replica 0: the replicas have fallen "
                "apart",
            first);
        const std::string second = message_of<Error>([&] { trainer.check_agreement(); });
        expect(second.starts_with("buffer 'doubles': replicas 1, 2 differ"), second);
      },
      {.axis_size = 3})();
}

TEST_CASE("parameters of a DataParallel that fall apart are named") {
  pmap(
      [] {
        Holder holder(0);
        holder.weight.set_requires_grad(true);
        DataParallel parallel(holder, "i");
        if (axis_index("i") == 1) {
          const c10::AutoGradMode no_grad(false);
          holder.weight.add_(1);
        }
        const std::string message = message_of<Error>([&] { parallel.check_agreement(); });
        expect(message.starts_with("parameter 'weight': replica 1 differs from replica 0"),
               message);
        const std::vector<Tensor> leaves{at::ones({2}).set_requires_grad(true)};
        DataParallel tree(leaves, "i");
        tree.check_agreement();
      },
      {.axis_size = 2})();
}

TEST_CASE("buffers that replicas do not have alike are refused by name") {
  const auto refusal = [](const std::function<void(torch::nn::Linear&)>& on_replica_1) {
    return message_of<ValueError>([&] {
      pmap(
          [&] {
            torch::nn::Linear linear(2, 2);
            linear->register_buffer("first", at::zeros({2}));
            if (axis_index("i") == 1) on_replica_1(linear);
            const DataParallel parallel(*linear, "i");
          },
          {.axis_size = 2})();
    });
  };
  CHECK_THAT(refusal([](auto& linear) {
               linear->register_buffer("more", at::zeros({2, 3}));
             }),
             ContainsSubstring("the replicas have different models: buffer 1 is none on replica 0 "
                               "and 'more' (2, 3) Float on replica 1"));
  CHECK_THAT(refusal([](auto& linear) {
               linear->named_buffers()["first"].set_data(at::zeros({2}, at::kDouble));
             }),
             ContainsSubstring("buffer 0 is 'first' (2) Float on replica 0 and 'first' (2) Double "
                               "on replica 1"));
  CHECK_THAT(
      refusal([](auto& linear) { linear->register_buffer("sparse", at::zeros({2}).to_sparse()); }),
      ContainsSubstring("buffer 'sparse' must be a dense tensor on the CPU"));
}

TEST_CASE("BatchNorm's statistics are the mean of the replicas'") {
  at::Tensor sum = at::zeros({7});  // of what each replica makes of its part
  for (std::int64_t replica = 0; replica < 4; ++replica) {
    const auto model = normed_model();
    for (std::int64_t m = 0; m < kMicrobatches; ++m) (void)sample_loss(*model, 0, m, replica);
    sum += state_of(*model).at("norm.running_mean");
  }
  pmap(
      [&] {
        const auto model = normed_model();
        DataParallel parallel(*model, "i", {.local_batch_norm = true});
        parallel.accumulate(sample_loss(*model, 0, 0, axis_index("i")));
        parallel.backward(sample_loss(*model, 0, 1, axis_index("i")));
        const State state = state_of(*model);
        if (!state.at("norm.running_mean").allclose(sum / 4, 1e-6, 1e-7))
          throw Error("other means");
        expect_equal(state.at("norm.num_batches_tracked"), at::full({}, 2, at::kLong),
                     "another number");
        expect_equal(state.at("scale"), at::full({1}, 0.1), "another scale");
      },
      {.axis_size = 4})();
}

TEST_CASE("training with BatchNorm gives the same bits at all stages and in all placements") {
  const Quiet quiet;
  check_training_everywhere(normed_model);
}

TEST_CASE("LibTorch's BatchNorm on several replicas is refused by name, unless it is wanted") {
  const auto refusal = [](const std::function<void()>& call) {
    return message_of<ValueError>(call);
  };
  pmap(
      [&] {
        const auto net = std::make_shared<torch::nn::Module>();
        auto linear = net->register_module("linear", torch::nn::Linear(2, 2));
        auto inner = net->register_module(
            "inner", torch::nn::ModuleList(torch::nn::BatchNorm2d(2), torch::nn::BatchNorm3d(2)));
        net->register_module("last", torch::nn::BatchNorm1d(2));
        const std::string rule =
            " torch::nn::BatchNorm in training mode, which normalizes by each replica's own "
            "samples: use lockstep::BatchNorm; a loop of one's own has the option local_batch_norm";
        ZeroOptions options;
        options.axis_name = "i";
        expect_contains(refusal([&] { const ZeroTrainer trainer(*net, options); }),
                        "'inner.0', 'inner.1', 'last' are" + rule);
        inner->eval();
        expect_contains(refusal([&] { const DataParallel parallel(*net, "i"); }),
                        "'last' is a" + rule);
        torch::nn::BatchNorm1d alone(2);
        expect_contains(refusal([&] { const DataParallel parallel(*alone, "i"); }),
                        "the module is a" + rule);
        options.local_batch_norm = true;
        { const ZeroTrainer trainer(*net, options); }
        { const DataParallel parallel(*net, "i", {.local_batch_norm = true}); }

        // Frozen ones are none, until they train.
        net->eval();
        options.local_batch_norm = false;
        ZeroTrainer trainer(*net, options);
        trainer.backward(linear->forward(at::ones({1, 2})).sum());
        trainer.step(0.1);
        net->train();
        expect_contains(refusal([&] {
                          trainer.backward(linear->forward(at::ones({1, 2})).sum());
                        }),
                        "'inner.0', 'inner.1', 'last' are" + rule);
      },
      {.axis_size = 2})();
  pmap(
      [] {
        torch::nn::BatchNorm1d norm(2);
        const DataParallel parallel(*norm, "i");
      },
      {.axis_size = 1})();
}
