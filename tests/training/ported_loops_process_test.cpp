#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/training/data_parallel.h"
#include "framework/training/process_generator.h"
#include "framework/training/sharded_optimizer.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/programs.h"

// What loops that were written for one process get wrong when replicas run them, without an error
// of their own: each is said once.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// The lines of a job's warnings that have `part`.
std::vector<std::string> warnings(const std::string& part, const std::function<void()>& replica,
                                  const LaunchOptions& options = {.replicas = 2}) {
  const Ended end = launched(replica, options);
  check_status(end, 0);
  return lines_with(part, end.err);
}

torch::nn::Linear made_alike() {
  return seeded(3, [] { return torch::nn::Linear(4, 2); });
}

// Batch `step` of a data set that knows nothing of replicas.
at::Tensor inputs_at(std::int64_t step) {
  return at::arange(12.0).view({3, 4}).remainder(5) + static_cast<double>(step);
}

enum class Data { same, own, none };

at::Tensor loss_at(torch::nn::Linear& net, std::int64_t step, Data data) {
  at::Tensor inputs = inputs_at(step);
  if (data == Data::own) inputs = inputs + static_cast<double>(axis_index("data"));
  const at::Tensor loss = net->forward(inputs).pow(2).mean();
  return data == Data::none ? loss * 0 : loss;
}

void train_averaging(Data data, const DataParallelOptions& options = {}) {
  auto net = made_alike();
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  const DataParallel parallel(*net, "data", options);
  for (std::int64_t step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    loss_at(net, step, data).backward();
    optimizer.step();
  }
}

void train_sharding(Data data, int stage, bool may_repeat = false) {
  auto net = made_alike();
  ZeroTrainer trainer(*net, {.stage = stage, .accumulate = 2, .may_repeat_samples = may_repeat});
  for (std::int64_t step = 0; step < 6; ++step) {
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      trainer.backward(loss_at(net, step, data));
    }
    (void)trainer.step(0.01);
  }
}

const std::string kSame = "have computed the same gradients";

}  // namespace

TEST_CASE("the same samples on every replica are said once") {
  const std::vector<std::string> expected{
      "lockstep: warning: all 2 replicas have computed the same gradients in 3 steps, so they seem "
      "to train on the same samples and learn what one alone would: give each its own, by "
      "lockstep::Sampler or by axis_index('data'); if they are to repeat each other, set the "
      "option "
      "may_repeat_samples (said once)"};
  for (const LaunchMode mode : kModes) {
    for (const std::int64_t workers : {2, 1}) {
      const LaunchOptions options{.replicas = 2, .workers = workers, .mode = mode};
      CHECK(warnings(
                kSame, [] { train_averaging(Data::same); }, options) == expected);
      CHECK(warnings(
                kSame, [] { train_averaging(Data::own); }, options)
                .empty());
    }
  }
  CHECK(warnings(kSame, [] { train_averaging(Data::none); }).empty());
  CHECK(warnings(kSame, [] { train_averaging(Data::same, {.may_repeat_samples = true}); }).empty());
  CHECK(warnings(kSame, [] { train_averaging(Data::same); }, {.replicas = 1}).empty());
  for (const int stage : {0, 1, 2, 3}) {
    CHECK(warnings(kSame, [&] { train_sharding(Data::same, stage); }) == expected);
    CHECK(warnings(kSame, [&] { train_sharding(Data::own, stage); }).empty());
  }
  CHECK(warnings(kSame, [] { train_sharding(Data::none, 0); }).empty());
  CHECK(warnings(kSame, [] { train_sharding(Data::same, 1, /*may_repeat=*/true); }).empty());
  const Ended end = launched(
      [] { train_averaging(Data::same, {.randomness = Randomness::strict}); }, {.replicas = 2});
  CHECK(end.status == 2);
  CHECK_THAT(last_words(end), ContainsSubstring(kSame));
  CHECK_THAT(last_words(end), ContainsSubstring("; the option randomness is strict"));
}

TEST_CASE("a model that unseeded draws have initialized is noticed when a trainer gets it") {
  const auto train_new = [](const std::string& who, Randomness randomness = Randomness::warn) {
    torch::nn::Linear net(4, 2);
    if (who == "DataParallel") {
      const DataParallel parallel(*net, "data", {.randomness = randomness});
    } else if (who == "ZeroTrainer") {
      const ZeroTrainer trainer(*net, {.randomness = randomness});
    } else {
      const ShardedOptimizer optimizer(*net, [](std::vector<at::Tensor> own) {
        return std::make_unique<torch::optim::SGD>(std::move(own), 0.1);
      });
    }
  };
  const std::string drawn = "had drawn from";
  for (const LaunchMode mode : kModes) {
    for (const std::string who : {"DataParallel", "ZeroTrainer", "ShardedOptimizer"}) {
      CHECK(
          warnings(drawn, [&] { train_new(who); }, {.replicas = 2, .mode = mode}) ==
          std::vector<std::string>{
              "lockstep: warning: " + who +
              ": before it was made, 2 of 2 replicas had drawn from LibTorch's process-wide "
              "generator, which has no seed: a module that such draws have initialized is another "
              "in every run and placement; make it in lockstep::seeded(seed, …), or call "
              "torch::manual_seed()"});
    }
    const Ended end = launched([&] { train_new("ZeroTrainer", Randomness::strict); },
                               {.replicas = 2, .mode = mode});
    CHECK(end.status == 2);
    CHECK_THAT(last_words(end), ContainsSubstring("which has no seed"));
  }
  // Of a group of one, too.
  CHECK(warnings(drawn, [&] { train_new("DataParallel"); }, {.replicas = 1}).size() == 1);
  CHECK(warnings(drawn, [] { train_averaging(Data::own); }).empty());
  // What was made by one trainer's replicas is not said again for the next.
  CHECK(warnings(drawn, [&] {
          train_new("ZeroTrainer");
          train_averaging(Data::own);
        }).size() == 1);
}

TEST_CASE("a seed for the process makes a module alike where each replica has a process") {
  const auto seeded_by_torch = [](LaunchMode mode) {
    const Ended end = run_forked([mode] {
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      generator.set_current_seed(1);  // as torch::manual_seed() does
      return launch(
          [] {
            torch::nn::Linear net(4, 2);
            const DataParallel parallel(*net, "data");
          },
          {.replicas = 3, .mode = mode});
    });
    check_status(end, 0);
    return lines_with("process-wide generator", end.err);
  };
  CHECK(seeded_by_torch(LaunchMode::processes).empty());
  CHECK(seeded_by_torch(LaunchMode::threads) ==
        std::vector<std::string>{
            "lockstep: warning: DataParallel: the initial values of parameter 'weight' differ "
            "between replicas, which have drawn from LibTorch's process-wide generator: all start "
            "with replica 0's, which are others in every placement; make it in "
            "lockstep::seeded(seed, …)"});
}

TEST_CASE("gradients that are not zeroed before the second backward are said once") {
  const auto said_with = [](const std::function<void(torch::optim::SGD&)>& zero) {
    return warnings("adds to the .grad()", [&] {
      auto net = made_alike();
      torch::optim::SGD optimizer(net->parameters(), 0.01);
      DataParallel parallel(*net, "data");
      for (std::int64_t step = 0; step < 4; ++step) {
        zero(optimizer);
        parallel.accumulate(loss_at(net, step, Data::own));
        parallel.backward(loss_at(net, step, Data::own));
        optimizer.step();
      }
    });
  };
  CHECK(said_with([](torch::optim::SGD&) {}) ==
        std::vector<std::string>{
            "lockstep: warning: DataParallel::backward adds to the .grad() that is there, as "
            "loss.backward() does, and that of the last call was not zeroed: call the optimizer's "
            "zero_grad() after each step (said once)"});
  CHECK(said_with([](torch::optim::SGD& optimizer) { optimizer.zero_grad(); }).empty());
}

TEST_CASE("a write into parameters after the trainer's last call is said when the trainer ends") {
  const auto write = [](const torch::nn::Linear& net) {
    const c10::AutoGradMode no_grad(false);
    net->weight.mul_(0.5);
  };
  const auto ended_after =
      [&](int stage, const std::function<void(ZeroTrainer&, const torch::nn::Linear&)>& last) {
        return warnings("after the trainer's last call", [&] {
          auto net = made_alike();
          ZeroTrainer trainer(*net, {.stage = stage});
          trainer.backward(loss_at(net, 0, Data::own));
          (void)trainer.step(0.01);
          last(trainer, net);
        });
      };
  const std::string text =
      "lockstep: warning: replica 1, over 'data': 'weight' was written to after the trainer's last "
      "call, which nothing has compared with the other replicas' values: write parameters in "
      "edit_parameters(), or when their trainer has ended";
  for (const int stage : {0, 1, 3}) {
    CHECK(ended_after(stage, [&](ZeroTrainer&, const torch::nn::Linear& net) {
            if (axis_index("data") == 1) write(net);
          }) == std::vector<std::string>{"[replica 1] " + text});
    CHECK(ended_after(stage, [&](ZeroTrainer& trainer, const torch::nn::Linear& net) {
            trainer.edit_parameters([&] { write(net); });
          }).empty());
  }
  const Ended released = launched(
      [&] {
        auto net = made_alike();
        ZeroTrainer trainer(*net, {.stage = 1});
        trainer.backward(loss_at(net, 0, Data::own));
        (void)trainer.step(0.01);
        write(net);
        trainer.release_parameters();
      },
      {.replicas = 1});
  CHECK(released.status == 2);
  CHECK_THAT(last_words(released),
             ContainsSubstring("'weight' was written to since the last step"));
  const auto sharded = warnings("after the trainer's last call", [&] {
    auto net = made_alike();
    ShardedOptimizer optimizer(*net, [](std::vector<at::Tensor> own) {
      return std::make_unique<torch::optim::SGD>(std::move(own), 0.1);
    });
    DataParallel parallel(*net, "data");
    parallel.backward(loss_at(net, 0, Data::own));
    optimizer.step();
    if (axis_index("data") == 1) write(net);
  });
  CHECK(sharded == std::vector<std::string>{"[replica 1] " + text});
}
