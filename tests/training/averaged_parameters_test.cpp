#include "framework/training/averaged_parameters.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr double kDecay = 0.2;  // between the second and the third update's in a warm-up

ZeroOptions averaging(int stage) {
  ZeroOptions options = adam(stage);
  options.ema_decay = kDecay;
  options.bucket_mb = 3e-4;
  options.non_finite = NonFinite::skip;
  return options;
}

// Those of the parameters that are trained; the frozen one has no average.
Pieces values_of(ZeroTrainer& trainer) {
  Pieces values = state_pieces(trainer, "parameters/");
  std::erase_if(values, [](const auto& each) { return each.first.first == "frozen"; });
  return values;
}

// A step with inputs of the model's dtype.
StepReport step_of(ZeroTrainer& trainer, OddModel& model, std::int64_t step, double factor = 1) {
  const Samples batch = samples(step, axis_index("data") * kBatch, kBatch);
  const at::ScalarType dtype = model.parameters()[0].scalar_type();
  const at::Tensor outputs = model.forward(batch.inputs.to(dtype));
  trainer.backward((outputs - batch.targets).pow(2).mean() * factor);
  return trainer.step(kRate);
}

// The averages after four steps, one of them skipped, checked against those made by hand.
Parameters averaged(const ZeroOptions& options, at::ScalarType dtype) {
  OddModel model;
  if (dtype != at::kFloat) model.to(dtype);  // else one parameter is float64
  ZeroTrainer trainer(model, options);
  Pieces expected = values_of(trainer);
  double updates = 0;
  for (std::int64_t step = 0; step < 4; ++step) {
    if (step == 2) {
      expect(step_of(trainer, model, step, std::numeric_limits<double>::infinity()).skipped,
             "not skipped");
      continue;
    }
    step_of(trainer, model, step);
    const double most = (1 + updates) / (10 + updates);  // 0.1, 2/11 and 0.25
    const double decay = options.ema_warmup ? std::min(kDecay, most) : kDecay;
    ++updates;
    for (const auto& [place, values] : values_of(trainer)) {
      at::Tensor& average = expected.at(place);
      average = average + (values - average) * (1 - decay);
    }
  }
  expect_same_pieces(state_pieces(trainer, "ema/"), expected);

  const Parameters before = visited_parameters(trainer);
  Parameters result;
  {
    const auto scope = trainer.averaged_parameters();
    result = copies(model);
    (void)model.forward(samples(0, 0, 2).inputs.to(dtype));
    expect(first_difference(visited_parameters(trainer), result).empty(),
           "visit_parameters() shows others");
  }
  for (const auto& [place, values] : expected) {
    const auto& [name, offset] = place;
    const at::Tensor part = result.at(name).flatten().narrow(0, offset, values.numel());
    expect(part.equal(values.to(part.scalar_type())), "another value of " + name);
  }
  const std::string moved = first_difference(visited_parameters(trainer), before);
  expect(moved.empty(), "the parameter does not return: " + moved);
  expect(first_difference(before, result) != "", "averages are the values");
  step_of(trainer, model, 5);
  return result;
}

}  // namespace

TEST_CASE("averages of parameters are those by hand, at all stages and in all placements") {
  const Quiet quiet;
  for (const auto& [dtype, warms_up] :
       {std::pair{at::kFloat, true}, {at::kFloat, false}, {at::kBFloat16, true}}) {
    const at::ScalarType type = dtype;
    Parameters common;
    std::mutex mutex;
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool is_late : {false, true}) {
        INFO("stage " << stage << ", late parameters " << is_late << ", warm-up " << warms_up);
        ZeroOptions options = averaging(stage);
        options.ema_warmup = warms_up;
        options.late_parameters = is_late;
        in_every_placement(3, [&] {
          const Parameters own = averaged(options, type);
          const std::lock_guard lock(mutex);
          if (common.empty()) common = own;
          expect(first_difference(own, common).empty(), "replicas or stages differ");
        });
      }
    }
  }
}

TEST_CASE("training with averages has the bits of training without") {
  for (const int stage : {0, 3}) {
    ZeroOptions options = adam(stage);
    const Parameters expected = trained_in_pmap(3, options);
    options.ema_decay = 0.9;
    CHECK(first_difference(trained_in_pmap(3, options), expected) == "");
  }
}

TEST_CASE("averages are restored on other replicas, and start anew where there are none") {
  const Quiet quiet;
  const TemporaryFolder folder;
  const auto run = [](std::int64_t replicas, const std::function<void()>& replica) {
    REQUIRE(launch(replica, threads(replicas, Backend::gloo)) == 0);
  };
  std::mutex mutex;
  Parameters saved;
  const auto shown = [&](ZeroTrainer& trainer, const OddModel& model) {
    const auto scope = trainer.averaged_parameters();
    return copies(model);
  };
  run(2, [&] {
    OddModel model;
    ZeroTrainer trainer(model, averaging(1));
    for (std::int64_t step = 0; step < 3; ++step) train_step(trainer, model, step, 1, "data");
    save_checkpoint(folder.path() / "with", {&trainer}, {.step = 3});
    const Parameters own = shown(trainer, model);
    const std::lock_guard lock(mutex);
    saved = own;
  });
  run(3, [&] {
    OddModel model;
    ZeroTrainer trainer(model, averaging(3));
    (void)load_checkpoint(folder.path() / "with" / "latest", {&trainer});
    expect(first_difference(shown(trainer, model), saved).empty(), "other averages");
    std::int64_t updates = -1;
    trainer.visit_state([&](const StatePiece& piece) {
      if (piece.name == "ema_updates") updates = piece.values.item<std::int64_t>();
    });
    expect(updates == (axis_index("data") == 0 ? 3 : -1), "the warm-up begins anew");

    OddModel plain_model;
    ZeroTrainer plain(plain_model, adam(2));
    train_step(plain, plain_model, 7, 1, "data");
    save_checkpoint(folder.path() / "without", {&plain}, {.step = 3});
    (void)load_checkpoint(folder.path() / "without" / "latest", {&trainer});
    expect(first_difference(shown(trainer, model), copies(plain_model)).empty(),
           "averages do not start at the values");
  });
}

TEST_CASE("averages go on with warm-up or without, as the option says") {
  const Quiet quiet;
  const TemporaryFolder folder;
  // The averages after `steps` more.
  const auto trained = [&](const std::string& from, const std::string& to, bool warms_up,
                           std::int64_t steps) {
    Parameters result;
    const auto replica = [&] {
      OddModel model;
      ZeroOptions options = averaging(1);
      options.ema_decay = 0.9;
      options.ema_warmup = warms_up;
      ZeroTrainer trainer(model, options);
      if (!from.empty()) (void)load_checkpoint(folder.path() / from / "latest", {&trainer});
      const std::int64_t begin = trainer.steps();
      for (std::int64_t step = begin; step < begin + steps; ++step) {
        train_step(trainer, model, step, 1, "data");
      }
      save_checkpoint(folder.path() / to, {&trainer}, {.step = begin + steps});
      const auto scope = trainer.averaged_parameters();
      const Parameters own = copies(model);
      if (axis_index("data") == 0) result = own;
    };
    REQUIRE(launch(replica, threads(2, Backend::gloo)) == 0);
    return result;
  };
  (void)trained("", "plain", false, 3);
  (void)trained("", "warm", true, 3);
  const Parameters plain = trained("plain", "plain_on", false, 2);
  const Parameters warm = trained("warm", "warm_on", true, 2);
  CHECK(first_difference(plain, trained("", "plain_whole", false, 5)) == "");
  CHECK(first_difference(warm, trained("", "warm_whole", true, 5)) == "");
  CHECK(first_difference(trained("plain", "warmed", true, 2), plain) != "");
  CHECK(first_difference(trained("warm", "cooled", false, 2), warm) != "");
}

TEST_CASE("averages start at what parameters are before the first step") {
  pmap(
      [] {
        ZeroOptions options = averaging(1);
        options.axis_name = "i";
        OddModel model;
        ZeroTrainer trainer(model, options);
        { const auto scope = trainer.averaged_parameters(); }
        trainer.edit_parameters([&] {
          for (const at::Tensor& parameter : model.parameters()) parameter.fill_(0.5);
        });
        expect_same_pieces(state_pieces(trainer, "ema/"), values_of(trainer));
        const auto scope = trainer.averaged_parameters();
        for (const at::Tensor& parameter : model.parameters()) {
          expect(parameter.eq(0.5).all().item<bool>(), "another start");
        }
      },
      {.axis_size = 2})();
}

TEST_CASE("what can't be done with averages says so") {
  CHECK_THROWS_WITH(check_options({.ema_decay = 1}),
                    "ZeRO: ema_decay must be at least 0 and less than 1, not 1");
  in_every_placement(2, [] {
    OddModel model;
    {
      ZeroTrainer plain(model, adam(1));
      expect_contains(message_of<ValueError>([&] { (void)plain.averaged_parameters(); }),
                      "the option ema_decay is not set");
    }
    ZeroTrainer trainer(model, averaging(2));
    train_step(trainer, model, 0, 1, "data");
    auto scope = trainer.averaged_parameters();
    const std::string refusal = "called while averaged_parameters() lives";
    const auto expect_refused = [&](const std::function<void()>& call) {
      expect_contains(message_of<ValueError>(call), refusal);
    };
    expect_refused([&] { trainer.backward(mean_loss(model, samples(0, 0, 2))); });
    expect_refused([&] { trainer.edit_parameters([] {}); });
    expect_refused([&] { trainer.release_parameters(); });
    expect_refused([&] { (void)trainer.averaged_parameters(); });
    expect_refused([&] { trainer.visit_state([](const StatePiece&) {}); });
    {
      const c10::AutoGradMode no_grad(false);
      model.parameters()[0].add_(1);
    }
    const at::Tensor old = mean_loss(model, samples(0, 0, 2));
    scope.reset();
    expect_contains(
        message_of<ValueError>([&] { trainer.backward(mean_loss(model, samples(0, 0, 2))); }),
        "was written to since the last step");
    // Its graph has averages, which are gone.
    expect(message_of<ValueError>([&] { old.backward(); }).find("inplace operation") !=
               std::string::npos,
           "a graph of averages is walked");
  });
}
