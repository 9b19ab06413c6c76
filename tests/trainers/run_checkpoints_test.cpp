#include "trainers/run/run_checkpoints.h"

#include <cstdint>
#include <optional>

#include <torch/nn/modules/linear.h>

#include "framework/base/errors.h"
#include "framework/launch/launch.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/run/resume.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("a best checkpoint that could not be saved is not the one to beat") {
  const TemporaryFolder folder;
  const Config config = parse(
      "model: {name: linear}\ndata: {name: pmean_example}\n"
      "checkpoint: {best: accuracy, async: false, on_error: warn}");
  const int status = launch(
      [&] {
        torch::nn::Linear model(3, 2);
        ZeroTrainer trainer(*model, {.optimizer = {.name = "sgd"}});
        bool fails = false;
        std::int64_t step = 0;
        const auto describe = [&] { return CheckpointInfo{.step = step}; };
        RunCheckpoints checkpoints(config, folder.path(), trainer, describe, [&] {
          if (fails) throw Error("the disk is full");
        });
        const auto save = [&](std::optional<double> figure) {
          ++step;
          checkpoints.note_evaluation(figure);
          checkpoints.save();
        };
        const auto expect_best = [&](double figure, std::int64_t last_step) {
          if (checkpoints.best() != figure) throw Error("another figure is the best");
          if (checkpoints.last_step() != last_step) throw Error("another step is the last");
        };
        if (checkpoints.best()) throw Error("there is a best one before the first");
        save(0.5);
        expect_best(0.5, 1);
        fails = true;
        save(0.75);
        expect_best(0.5, 1);
        fails = false;
        save(std::nullopt);
        expect_best(0.5, 3);
        save(0.625);
        expect_best(0.625, 4);
        RunCheckpoints later(config, folder.path(), trainer, describe, {});
        const auto latest = checkpoints_of(folder.path()) / "latest";
        later.go_on(latest, checkpoint_info(latest));
        if (later.best() != 0.625) throw Error("a resumed run has another best figure");
      },
      {.replicas = 2, .mode = LaunchMode::threads});
  CHECK(status == 0);
  CHECK(checkpoint_info(checkpoints_of(folder.path()) / "best").step == 4);
}
