#include "framework/base/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/training/memory_prediction.h"
#include "framework/training/zero.h"
#include "models/mlp.h"
#include "models/model.h"
#include "tests/catch.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A model of `count` parameters of `size` elements, without padding.
class Shapes : public torch::nn::Module {
 public:
  Shapes(int count, std::int64_t size) {
    for (int i = 0; i < count; ++i) {
      register_parameter("weight" + std::to_string(i),
                         at::empty({size}, at::TensorOptions().device(at::kMeta)));
    }
  }
};

ZeroOptions unclipped_adam(int stage) {
  return {.stage = stage, .optimizer = {.name = "adam"}};
}

}  // namespace

TEST_CASE("predictions are the ZeRO paper's formulas, without allocating anything") {
  constexpr std::int64_t kSize = std::int64_t{64} * 4 * 10'000'000;
  constexpr std::int64_t kPsi = 100 * kSize;  // of a model that no host can hold
  Shapes module(100, kSize);
  constexpr std::int64_t kN = 4;
  const ReplicaPlacement apart{.replicas = kN, .shares_memory = false};
  const auto state_of = [&](int stage, const ReplicaPlacement& placement) {
    const MemoryUse use = predicted_memory(module, unclipped_adam(stage), placement).largest;
    return use.parameters + use.gradients + use.optimizer_state;
  };
  CHECK(state_of(0, apart) == 16 * kPsi);
  CHECK(state_of(1, apart) == 8 * kPsi + 8 * kPsi / kN);
  CHECK(state_of(2, apart) == 4 * kPsi + 12 * kPsi / kN);
  // The module is no Block: its parameters are whole at stage 3, too.
  CHECK(state_of(3, apart) == 4 * kPsi + 12 * kPsi / kN);
  // Two buckets on their way.
  CHECK(predicted_memory(module, unclipped_adam(2), apart).largest.communication == 2 * 4 * kSize);
  // Freeing the only bucket would take more memory than keeping it.
  Shapes small(1, kSize);
  CHECK(predicted_memory(small, unclipped_adam(2), apart).largest.gradients == 4 * kSize);
  const ReplicaPlacement together{.replicas = kN, .shares_memory = true};
  const MemoryUse shared = predicted_memory(module, unclipped_adam(0), together).host;
  CHECK(shared.total() == 4 * kPsi + kN * 4 * kPsi + 8 * kPsi);
  // Of two hosts with two replicas each, both hold all parameters once, and at stage 0 all state.
  const ReplicaPlacement of_two{.replicas = kN, .here = {2, 2}, .workers_here = 2};
  const MemoryUse whole = predicted_memory(module, unclipped_adam(0), of_two).host;
  CHECK(whole.parameters == 4 * kPsi);
  CHECK(whole.optimizer_state == 8 * kPsi);
  const MemoryUse half = predicted_memory(module, unclipped_adam(1), of_two).host;
  CHECK(half.parameters == 4 * kPsi);
  CHECK(half.optimizer_state == 4 * kPsi);
  const ZeroOptions sgd;
  CHECK(predicted_memory(module, sgd, apart).largest.optimizer_state == 0);
}

TEST_CASE("at stage 3 blocks are cut") {
  const DeferredValues shapes;
  const std::vector<std::int64_t> hidden(9, 1600);
  const auto model =
      make_model(keys::Picked("mlp", MlpOptions{.hidden = hidden}), value_sample({1600}, 160), 0);
  const std::int64_t block = 1600 * 1600 + 1600;
  const std::int64_t psi = 9 * block + 160 * 1600 + 160;
  const MemoryUse use =
      predicted_memory(*model, unclipped_adam(3), {.replicas = 4, .shares_memory = false}).largest;
  CHECK(use.parameters + use.gradients + use.optimizer_state >= 16 * psi / 4);
  CHECK(use.parameters + use.gradients + use.optimizer_state <= 16 * psi / 4 + 16 * 10 * 256);
  // Two blocks gathered, two buckets on their way.
  CHECK(use.communication >= 2 * 4 * block + 2 * 4 * block);
  CHECK(use.communication <= 2 * 4 * block + 2 * 4 * block + 4 * 4 * 256);
}

TEST_CASE("what a trainer holds is what was predicted") {
  const Quiet quiet;
  for (const Backend backend : {Backend::automatic, Backend::gloo}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const std::int64_t accumulate : {1, 2}) {
        for (const bool reduces_every : {false, true}) {
          for (const Compression compression : {Compression::none, Compression::bf16}) {
            ZeroOptions options = unclipped_adam(stage);
            options.accumulate = accumulate;
            options.reduce_every_microbatch = reduces_every;
            options.compression = compression;
            if (compression != Compression::none) options.ema_decay = 0.99;
            options.bucket_mb = 0.05;
            const auto [predicted, measured] = result_of_job(threads(3, backend), [&] {
              OddModel model(5000);
              const ReplicaPlacement placement{.replicas = 3,
                                               .shares_memory = backend == Backend::automatic};
              const MemoryUse before = predicted_memory(model, options, placement).largest;
              ZeroTrainer trainer(model, options);
              for (std::int64_t m = 0; m < 2 * accumulate; ++m) {
                trainer.backward(mean_loss(model, samples(m, axis_index("data"), 2)));
                if (m % accumulate == accumulate - 1) trainer.step(0.01);
              }
              return std::pair(before, trainer.memory());
            });
            INFO("stage " << stage << ", accumulate " << accumulate << ", every " << reduces_every);
            const auto close = [](std::int64_t a, std::int64_t b) {
              return std::abs(a - b) <= b / 20 + 4096;
            };
            CHECK(close(measured.parameters, predicted.parameters));
            CHECK(measured.shared_parameters / 1000 == predicted.shared_parameters / 1000);
            CHECK(close(measured.gradients, predicted.gradients));
            CHECK(close(measured.optimizer_state, predicted.optimizer_state));
            // Fewer bytes may be gathered at one time than the two largest blocks have.
            CHECK(measured.communication <= predicted.communication);
            if (stage < 3 || backend == Backend::automatic) {
              CHECK(measured.communication == predicted.communication);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("what a start and a saver take is what was predicted") {
  const Quiet quiet;
  for (const Backend backend : {Backend::automatic, Backend::gloo}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const Compression compression : {Compression::none, Compression::bf16}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
          ZeroOptions options = unclipped_adam(stage);
          options.compression = compression;
          options.bucket_mb =
              25;  // the replicas measure no link, which the prediction doesn't know
          const ReplicaPlacement placement{.replicas = 3,
                                           .shares_memory = backend == Backend::automatic};
          HostMemoryUse predicted;
          HostMemoryUse saved;
          HostMemoryUse measured;
          std::mutex mutex;
          const int status = launch(
              [&] {
                std::shared_ptr<Model> model;
                {
                  const DeferredValues deferred;
                  model = make_model(keys::Picked("mlp", MlpOptions{.hidden = {300, 200}}),
                                     value_sample({50}, 10), 0);
                }
                model->to(dtype);
                ZeroOptions own = options;
                own.initialize = [&](const std::string& name) {
                  return model->initial_value(name);
                };
                const HostMemoryUse start = predicted_memory(*model, own, placement);
                const HostMemoryUse copy = predicted_checkpoint(*model, own, placement);
                ZeroTrainer trainer(*model, own);
                std::int64_t bytes = 0;
                trainer.visit_state([&](const StatePiece& piece) {
                  bytes += static_cast<std::int64_t>(piece.values.nbytes());
                });
                const std::lock_guard lock(mutex);
                predicted = start;
                saved = copy;
                measured.largest.checkpoint = std::max(measured.largest.checkpoint, bytes);
                measured.host.checkpoint += bytes;
                measured.largest.initialization =
                    std::max(measured.largest.initialization, trainer.memory().initialization);
              },
              threads(3, backend));
          REQUIRE(status == 0);
          INFO("stage " << stage << ", compression " << (compression != Compression::none) << ", "
                        << at::toString(dtype));
          CHECK(predicted.largest.initialization == 4 * 300 * 200);
          CHECK(measured.largest.initialization == predicted.largest.initialization);
          CHECK(measured.host.checkpoint == saved.host.checkpoint);
          CHECK(measured.largest.checkpoint == saved.largest.checkpoint);
        }
      }
    }
  }
}

TEST_CASE("memory of replicas on fewer workers is what was predicted, of the largest and in all") {
  const Quiet quiet;
  struct Case {
    std::int64_t replicas, workers;
    Backend backend;
    std::int64_t accumulate;
  };
  const Case cases[] = {{4, 1, Backend::automatic, 2}, {4, 2, Backend::automatic, 1},
                        {4, 3, Backend::automatic, 2}, {5, 2, Backend::automatic, 1},
                        {9, 2, Backend::automatic, 2}, {16, 3, Backend::automatic, 1},
                        {8, 1, Backend::automatic, 1}, {4, 1, Backend::gloo, 1},
                        {4, 3, Backend::gloo, 1},      {9, 2, Backend::gloo, 2}};
  for (const auto& [replicas, workers, backend, accumulate] : cases) {
    for (const int stage : {0, 1, 2, 3}) {
      ZeroOptions options = unclipped_adam(stage);
      options.accumulate = accumulate;
      options.bucket_mb = 0.05;
      if (accumulate == 2) options.ema_decay = 0.99;
      HostMemoryUse predicted;
      HostMemoryUse measured;
      std::mutex mutex;
      const int status = launch(
          [&, accumulated = accumulate, count = replicas, at_once = workers,
           shares = backend == Backend::automatic || workers == 1] {
            OddModel model(5000);
            const HostMemoryUse before = predicted_memory(
                model, options, {.replicas = count, .workers = at_once, .shares_memory = shares});
            ZeroTrainer trainer(model, options);
            for (std::int64_t m = 0; m < 3 * accumulated; ++m) {
              trainer.backward(mean_loss(model, samples(m, axis_index("data"), 2)));
              if (m % accumulated == accumulated - 1) trainer.step(0.01);
            }
            const MemoryUse use = trainer.memory();
            const std::lock_guard lock(mutex);
            predicted = before;
            MemoryUse& largest = measured.largest;
            largest.parameters = std::max(largest.parameters, use.parameters);
            largest.gradients = std::max(largest.gradients, use.gradients);
            largest.optimizer_state = std::max(largest.optimizer_state, use.optimizer_state);
            largest.communication = std::max(largest.communication, use.communication);
            // What replicas hold together counts once.
            measured.host.parameters +=
                use.parameters - use.shared_parameters + use.shared_parameters / use.holders;
            measured.host.gradients += use.gradients;
            measured.host.optimizer_state += use.optimizer_state;
            measured.host.communication += use.communication;
          },
          threads(replicas, backend, workers));
      REQUIRE(status == 0);
      INFO(replicas << " replicas on " << workers << ", stage " << stage << ", gloo "
                    << (backend == Backend::gloo));
      const bool gathers = stage == 3 && backend == Backend::gloo && workers > 1;
      const auto check = [gathers](const MemoryUse& a, const MemoryUse& b) {
        CHECK(std::abs(a.parameters - b.parameters) <= b.parameters / 20);
        CHECK(std::abs(a.gradients - b.gradients) <= b.gradients / 20);
        CHECK(std::abs(a.optimizer_state - b.optimizer_state) <= b.optimizer_state / 20);
        // At stage 3 the two largest blocks may not be there at the same time.
        CHECK(a.communication <= b.communication);
        if (!gathers) CHECK(a.communication == b.communication);
      };
      check(measured.largest, predicted.largest);
      check(measured.host, predicted.host);
    }
  }
}

TEST_CASE(
    "after the first step a replica has what the trainer holds, not what the module was made in") {
  const Quiet quiet;
  constexpr std::int64_t kSize = 1 << 20;
  constexpr int kCount = 32;
  constexpr std::size_t kParameters = std::size_t{4} * kSize * kCount;
  const auto [grown, held] = result_of_job(threads(1, Backend::gloo), [] {
    release_freed_memory();
    const std::size_t before = resident_memory();
    torch::nn::Module module;
    std::vector<at::Tensor> weights;
    for (int i = 0; i < kCount; ++i) {
      weights.push_back(module.register_parameter("weight" + std::to_string(i), at::ones({kSize})));
    }
    ZeroTrainer trainer(module, unclipped_adam(0));
    at::Tensor loss = at::zeros({});
    for (const at::Tensor& weight : weights) loss = loss + weight.sum();
    trainer.backward(loss);
    loss.reset();
    trainer.step(0.01);
    const std::size_t more = resident_memory() - before;
    return std::pair(more, static_cast<std::size_t>(trainer.memory().total()));
  });
  CHECK(held == 4 * kParameters);
  CHECK(grown > held / 2);
  CHECK(grown < held + kParameters / 4);
}
