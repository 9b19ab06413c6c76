#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/telemetry/digest.h"
#include "framework/training/data_parallel.h"
#include "framework/training/process_generator.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/programs.h"
#include "tests/training/random_models.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// What replica 0 of such a job prints.
std::string printed(const std::function<std::string()>& text, const LaunchOptions& options) {
  const Ended end = launched(
      [&] {
        const std::string own = text();
        if (axis_index("data") == 0) std::printf("%s\n", own.c_str());
      },
      options);
  check_status(end, 0);
  return end.out;
}

// The same in all placements.
void check_everywhere(const std::function<std::string()>& text) {
  const std::string expected = printed(text, {.replicas = 4});
  CHECK(!expected.empty());
  for (const LaunchMode mode : kModes) {
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      for (const std::int64_t workers : {4, 2, 1}) {
        INFO(name_of(mode) << ", " << workers << " workers");
        CHECK(
            printed(text, {.replicas = 4, .workers = workers, .mode = mode, .backend = backend}) ==
            expected);
      }
    }
  }
}

std::vector<std::string> warnings(double p, LaunchMode mode, bool only_replica_1, int first_step) {
  const Ended end = launched(
      [&] {
        torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Dropout(p));
        ZeroTrainer trainer(*net, {});
        for (int step = 1; step <= 4; ++step) {
          const bool draws = step >= first_step && (!only_replica_1 || axis_index("data") == 1);
          net->train(draws);
          trainer.backward(in_another_thread([&] { return net->forward(at::ones({2, 4})); }).sum());
          trainer.step(0.1);
        }
      },
      {.replicas = 3, .mode = mode});
  check_status(end, 0);
  return lines_with("draws at random", end.err);
}

std::string warning(const std::string& where, const std::string& who, const std::string& end) {
  return where + "training draws at random from LibTorch's process-wide generator (it has " + who +
         "): threads, processes and fewer workers no longer give the same bits. Draws have the "
         "trainer's keys in the replica's own thread, unless torch::manual_seed() is called after "
         "the trainer is made; in other threads, as a data set's, and in maps inside the replica "
         "draw from a lockstep::Key, as lockstep::dropout(input, p, key) does, or give the "
         "operator "
         "a Generator (" +
         end;
}

}  // namespace

TEST_CASE("initialization under a guard, draws and buffers are the same in all placements") {
  check_everywhere([] {
    const auto net = seeded(5, [] { return torch::nn::Linear(30, 20); });
    std::map<std::string, at::Tensor> parameters;
    for (const auto& item : net->named_parameters()) parameters.emplace(item.key(), item.value());
    return parameters_sha256(parameters);
  });
  for (const int stage : {0, 3}) {
    const ZeroOptions options{.stage = stage};
    check_everywhere([&] { return parameters_sha256(trained_state(dropping_model, options)); });
    check_everywhere([&] { return parameters_sha256(trained_state(normed_model, options)); });
    check_everywhere([&] {
      const std::string plain = parameters_sha256(trained_state(jointly_normed_model, options));
      const std::string recomputed = parameters_sha256(trained_state(recomputed_model, options));
      if (plain != recomputed) throw Error("a recomputed block has other bits");
      return plain;
    });
    check_everywhere([&] {
      const std::string plain = parameters_sha256(trained_state(libtorch_model, options));
      const std::string recomputed =
          parameters_sha256(trained_state(recomputed_libtorch_model, options));
      if (plain != recomputed) throw Error("a recomputed block of LibTorch's has other bits");
      return plain;
    });
  }
}

TEST_CASE("a draw in training is said once by a job") {
  const std::string name = "'1', a torch::nn::Dropout";
  for (const LaunchMode mode : kModes) {
    CHECK(warnings(0.5, mode, false, 1) ==
          std::vector<std::string>{
              warning("lockstep: warning: ", name, "on 3 of 3 replicas; said once)")});
    CHECK(warnings(0.0, mode, false, 1).empty());
    CHECK(warnings(0.5, mode, false, 9).empty());
  }
  // In processes, each of which has a generator of its own: who does not draw has no module that
  // is known to.
  const std::vector<std::string> of_one = warnings(0.5, LaunchMode::processes, true, 1);
  REQUIRE(of_one.size() == 1);
  CHECK_THAT(of_one[0], ContainsSubstring("on 1 of 3 replicas; said once)"));
  CHECK(warnings(0.5, LaunchMode::processes, true, 3) ==
        std::vector<std::string>{
            warning("[replica 1] lockstep: warning: replica 1, step 3: ", name, "said once)")});
}

TEST_CASE("a strict replica that draws ends the job") {
  for (const LaunchMode mode : kModes) {
    const Ended end = launched(
        [] {
          auto net = seeded(1, [] {
            return torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5));
          });
          DataParallel parallel(*net, "data", {.randomness = Randomness::strict});
          parallel.backward(in_another_thread([&] {
                              return net->forward(at::ones({2, 4}));
                            }).sum());
        },
        {.replicas = 2, .mode = mode});
    CHECK(end.status == 2);
    CHECK_THAT(last_words(end), ContainsSubstring("(it has '1', a torch::nn::Dropout)"));
    CHECK_THAT(last_words(end), ContainsSubstring("the option randomness is strict"));
  }
}
