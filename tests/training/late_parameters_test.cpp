#include <atomic>
#include <map>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kReplicas = 3;
constexpr std::int64_t kLarge = 5'000;

// Blocks' parameters have buckets of their own.
ZeroOptions late(int stage) {
  ZeroOptions options = adam(stage);
  options.late_parameters = true;
  options.bucket_mb = 1e-4;
  return options;
}

// Runs `check` on a trainer with late parameters, and on one without, after so many steps. Both
// must find the same: what it returns, of all replicas.
template <typename Check>
void check_late(int stage, Backend backend, const Check& check) {
  std::map<bool, std::vector<Parameters>> found;
  for (const bool is_late : {false, true}) {
    found[is_late] = results_of_job(threads(kReplicas, backend), [&]() -> Parameters {
      OddModel model(kLarge);
      ZeroOptions options = late(stage);
      options.late_parameters = is_late;
      ZeroTrainer trainer(model, options);
      for (std::int64_t step = 0; step < 3; ++step) {
        (void)train_step(trainer, model, step, 1, "data");
      }
      return check(trainer, model);
    });
  }
  for (std::size_t replica = 0; replica < kReplicas; ++replica) {
    CHECK(!found[true][replica].empty());
    CHECK(first_difference(found[false][replica], found[true][replica]) == "");
  }
}

at::Tensor output_of(OddModel& model) {
  const c10::AutoGradMode no_grad(false);
  return model.forward(samples(9, 0, 2).inputs);
}

}  // namespace

TEST_CASE("late parameters give the same bits, wherever replicas and their workers are") {
  const Quiet quiet;
  for (const int stage : {0, 1, 2, 3}) {
    const Parameters expected = trained_in_job(threads(4, Backend::automatic), adam(stage), kLarge);
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      for (const std::int64_t workers : {4, 2}) {
        for (const double bucket_mb : {1e-4, 0.05, 25.0}) {
          ZeroOptions options = late(stage);
          options.bucket_mb = bucket_mb;
          const LaunchOptions launched = threads(4, backend, workers);
          INFO("stage " << stage << ", " << workers << " workers, bucket_mb " << bucket_mb);
          CHECK(first_difference(trained_in_job(launched, options, kLarge), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("late parameters are on the meta device until they are waited for") {
  const Quiet quiet;
  std::atomic<int> hidden{0};
  std::atomic<int> hidden_later{0};
  const int status = launch(
      [&] {
        OddModel model(kLarge);
        ZeroTrainer trainer(model, late(1));
        (void)train_step(trainer, model, 0, 1, "data");
        for (const at::Tensor& parameter : model.parameters()) {
          if (parameter.is_meta()) ++hidden;
        }
        (void)output_of(model);
        for (const at::Tensor& parameter : model.parameters()) {
          if (parameter.is_meta()) ++hidden_later;
        }
        trainer.release_parameters();
      },
      threads(kReplicas, Backend::gloo));
  REQUIRE(status == 0);
  CHECK(hidden > 0);
  CHECK(hidden_later == 0);
}

TEST_CASE("whoever reads late parameters by the trainer or a Block sees what all replicas have") {
  const Quiet quiet;
  for (const int stage : {1, 2}) {
    check_late(stage, Backend::gloo,
               [](ZeroTrainer& trainer, OddModel&) { return visited_parameters(trainer); });
    check_late(stage, Backend::gloo, [](ZeroTrainer&, OddModel& model) {
      return Parameters{{"output", output_of(model)}};
    });
    check_late(stage, Backend::gloo, [](ZeroTrainer& trainer, OddModel& model) {
      const auto whole = trainer.whole_parameters();
      return copies(model);
    });
    check_late(stage, Backend::gloo, [](ZeroTrainer& trainer, OddModel& model) {
      trainer.release_parameters();
      return copies(model);
    });
    check_late(stage, Backend::gloo, [](ZeroTrainer& trainer, OddModel&) {
      trainer.check_agreement();
      return visited_parameters(trainer);
    });
    check_late(stage, Backend::gloo, [](ZeroTrainer& trainer, OddModel& model) {
      trainer.edit_parameters([&] {
        const c10::AutoGradMode no_grad(false);
        for (const at::Tensor& parameter : model.parameters()) parameter.mul_(0.5);
      });
      return visited_parameters(trainer);
    });
    check_late(stage, Backend::gloo, [](ZeroTrainer& trainer, OddModel&) {
      Parameters state;
      trainer.visit_state([&](const StatePiece& piece) {
        state[piece.name + " " + std::to_string(piece.offset)] = piece.values.clone();
      });
      return state;
    });
    // A loss that depends on no Block: the others' gradients are zeros.
    check_late(stage, Backend::gloo, [](ZeroTrainer& trainer, OddModel&) {
      trainer.backward({});
      (void)trainer.step(kRate);
      return visited_parameters(trainer);
    });
  }
}

TEST_CASE("a Block whose parameters were late says so when its trainer is gone") {
  const Quiet quiet;
  const std::string message = result_of_job(threads(2, Backend::gloo), [] {
    OddModel model(kLarge);
    {
      ZeroTrainer trainer(model, late(1));
      (void)train_step(trainer, model, 0, 1, "data");
      (void)output_of(model);
    }
    return message_of<Error>([&] { (void)output_of(model); });
  });
  CHECK_THAT(message, ContainsSubstring("call its release_parameters() before it ends"));
}
