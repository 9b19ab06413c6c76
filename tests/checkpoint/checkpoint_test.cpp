#include "framework/checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/optim/optimizers.h"
#include "framework/storage/checkpoint_reader.h"
#include "framework/storage/checksum.h"
#include "framework/training/data_parallel.h"
#include "framework/training/sharded_optimizer.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kStepsBefore = 2;
constexpr std::int64_t kSteps = 5;

// Where replicas of a job run.
struct Placement {
  std::int64_t replicas = 1;
  Backend backend = Backend::automatic;
  std::int64_t workers = 0;
};

LaunchOptions job_in(const Placement& placement) {
  return threads(placement.replicas, placement.backend, placement.workers);
}

void run(const Placement& placement, const std::function<void()>& replica) {
  REQUIRE(launch(replica, job_in(placement)) == 0);
}

// Trains in `placement` from step `first` to `end`, from the checkpoint `from` (if it has a name)
// and into a checkpoint in `to` (likewise). Returns the parameters.
Parameters trained(const Placement& placement, const ZeroOptions& options, std::int64_t first,
                   std::int64_t end, const fs::path& from, const fs::path& to) {
  return result_of_job(job_in(placement), [&] {
    OddModel model;
    ZeroTrainer trainer(model, options);
    if (!from.empty()) {
      const CheckpointInfo info = load_checkpoint(from, {&trainer});
      if (info.step != first || trainer.steps() != first) throw Error("another step");
    }
    for (std::int64_t step = first; step < end; ++step) {
      train_step(trainer, model, step, options.accumulate, options.axis_name);
    }
    if (!to.empty()) save_checkpoint(to, {&trainer}, {.step = end});
    const auto whole = trainer.whole_parameters();
    return copies(model);
  });
}

// All tensors of a checkpoint, as bytes.
std::map<std::string, std::string> tensors_of(const fs::path& folder) {
  const storage::CheckpointReader reader(folder);
  std::map<std::string, std::string> tensors;
  for (const storage::ManifestTensor& tensor : reader.manifest().tensors) {
    std::size_t bytes = storage::element_bytes(tensor.dtype);
    for (const std::uint64_t size : tensor.shape) bytes *= size;
    std::string values(bytes, '\0');
    reader.read(tensor, 0, std::as_writable_bytes(std::span(values)));
    tensors[tensor.name] = values;
  }
  return tensors;
}

// Of all that this replica saves.
std::string digest_of(Stateful& training) {
  storage::Checksum checksum;
  training.visit_state([&](const StatePiece& piece) {
    checksum.add({static_cast<const std::byte*>(piece.values.data_ptr()), piece.values.nbytes()});
  });
  return checksum.text();
}

}  // namespace

TEST_CASE("another optimizer's state begins anew, and so does its count of steps") {
  const Quiet quiet;
  const TemporaryFolder folder;
  ZeroOptions options;
  options.optimizer.momentum = 0.9;
  (void)trained({.replicas = 2}, options, 0, kStepsBefore, "", folder.path());
  const auto counted_steps = [&](const std::string& optimizer, double momentum) {
    std::mutex mutex;
    std::set<std::int64_t> counts;
    run({.replicas = 2}, [&] {
      OddModel model;
      ZeroTrainer trainer(model,
                          {.stage = 1, .optimizer = {.name = optimizer, .momentum = momentum}});
      (void)load_checkpoint(folder.path() / "latest", {&trainer}, {.allow_differences = true});
      trainer.visit_state([&](const StatePiece& piece) {
        const std::lock_guard lock(mutex);
        if (!piece.name.starts_with(training::kOptimizerStep)) return;
        counts.insert(piece.values.item<std::int64_t>());
      });
    });
    return counts;
  };
  CHECK(counted_steps("sgd", 0.9) == std::set<std::int64_t>{kStepsBefore});
  CHECK(counted_steps("sgd", 0) == std::set<std::int64_t>{kStepsBefore});
  CHECK(counted_steps("adagrad", 0) == std::set<std::int64_t>{0});
  CHECK(counted_steps("adam", 0) == std::set<std::int64_t>{0});

  // Momentum is kept by an optimizer that finds all of its state, and by no other.
  const auto momentum_of = [&](const OptimizerOptions& optimizer) {
    std::mutex mutex;
    double largest = 0;
    run({.replicas = 2}, [&] {
      OddModel model;
      ZeroTrainer trainer(model, {.stage = 1, .optimizer = optimizer});
      (void)load_checkpoint(folder.path() / "latest", {&trainer}, {.allow_differences = true});
      trainer.visit_state([&](const StatePiece& piece) {
        const std::lock_guard lock(mutex);
        if (!piece.name.starts_with(training::kOptimizer + "momentum_buffer/")) return;
        if (piece.values.numel() == 0) return;
        largest = std::max(largest, piece.values.abs().max().item<double>());
      });
    });
    return largest;
  };
  CHECK(momentum_of({.momentum = 0.9}) > 0);
  OptimizerOptions rmsprop{.name = "rmsprop"};
  rmsprop.own.of<RMSpropOptions>("rmsprop").momentum = 0.9;
  CHECK(momentum_of(rmsprop) == 0);
}

TEST_CASE("training goes on from a checkpoint with the same bits, at any stage and placement") {
  const Quiet quiet;
  for (const std::int64_t replicas : {1, 2, 3, 4}) {
    for (const std::int64_t accumulate : {1, 2}) {
      const TemporaryFolder folder;
      ZeroOptions options = adam(0);
      options.accumulate = accumulate;
      const Parameters expected = trained({.replicas = replicas}, options, 0, kSteps, "", "");
      int count = 0;
      for (const int saved : {0, 1, 2, 3}) {
        options.stage = saved;
        options.bucket_mb = saved == 1 ? 25 : 3e-4;
        const Backend backend = saved % 2 == 0 ? Backend::gloo : Backend::automatic;
        const fs::path to = folder.path() / std::to_string(saved);
        (void)trained({.replicas = replicas, .backend = backend}, options, 0, kStepsBefore, "", to);
        for (const int resumed : {0, 1, 2, 3}) {
          options.stage = resumed;
          options.bucket_mb = resumed == 2 ? 25 : 3e-4;
          const Placement other{.replicas = replicas,
                                .backend = count % 2 == 0 ? Backend::gloo : Backend::automatic,
                                .workers = count % 3 == 0 ? replicas : (replicas + 1) / 2};
          ++count;
          INFO(replicas << " replicas, accumulate " << accumulate << ", stage " << saved << " to "
                        << resumed);
          CHECK(first_difference(trained(other, options, kStepsBefore, kSteps, to / "latest", ""),
                                 expected) == "");
        }
      }
    }
  }
}

TEST_CASE("a checkpoint has the same tensors, whoever saves it") {
  const Quiet quiet;
  const TemporaryFolder folder;
  const fs::path first = folder.path() / "first";
  (void)trained({.replicas = 3}, adam(1), 0, kStepsBefore, "", first);
  const auto expected = tensors_of(first / "latest");
  CHECK(expected.contains("parameters/scale"));
  CHECK(expected.contains("optimizer/exp_avg/scale"));
  CHECK(expected.contains("optimizer/step/scale"));
  CHECK(expected.contains("steps"));
  for (const std::int64_t replicas : {1, 2, 3, 4, 5, 8}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const Backend backend : {Backend::automatic, Backend::gloo}) {
        const fs::path again = folder.path() / "again";
        (void)trained({.replicas = replicas, .backend = backend}, adam(stage), kStepsBefore,
                      kStepsBefore, first / "latest", again);
        INFO(replicas << " replicas, stage " << stage);
        CHECK(tensors_of(again / "latest") == expected);
        const storage::CheckpointReader reader(again / "latest");
        CHECK(reader.manifest().replicas == replicas);
        CHECK(std::ssize(reader.manifest().files) == replicas);
      }
    }
  }
}

TEST_CASE("half types go on from their float32 masters, compression from what it has left out") {
  const Quiet quiet;
  for (const bool is_half : {true, false}) {
    const TemporaryFolder folder;
    const auto train = [&](int stage, std::int64_t first, std::int64_t end, const fs::path& from,
                           const fs::path& to) {
      return result_of_job(threads(3, stage == 0 ? Backend::gloo : Backend::automatic), [&] {
        OddModel model;
        if (is_half) model.to(at::kBFloat16);
        ZeroOptions options = adam(stage);
        if (!is_half) options.compression = Compression::bf16;
        ZeroTrainer trainer(model, options);
        if (!from.empty()) (void)load_checkpoint(from, {&trainer});
        for (std::int64_t step = first; step < end; ++step) {
          Samples batch = samples(step, axis_index("data") * kBatch, kBatch);
          if (is_half) batch.inputs = batch.inputs.to(at::kBFloat16);
          trainer.backward(
              (model.forward(batch.inputs) - batch.targets).pow(2).mean().to(at::kFloat));
          trainer.step(kRate);
        }
        if (!to.empty()) save_checkpoint(to, {&trainer}, {.step = end});
        const auto whole = trainer.whole_parameters();
        return copies(model);
      });
    };
    const Parameters expected = train(0, 0, kSteps, "", "");
    for (const int saved : {0, 1, 2, 3}) {
      const fs::path to = folder.path() / std::to_string(saved);
      (void)train(saved, 0, kStepsBefore, "", to);
      const storage::CheckpointReader reader(to / "latest");
      for (const char* name : {"parameters/scale", "parameters/frozen"}) {
        CHECK(reader.find(name)->dtype == "F32");
      }
      CHECK((reader.find("residuals/2/scale") != nullptr) == !is_half);
      for (const int resumed : {0, 1, 2, 3}) {
        INFO("half " << is_half << ", stage " << saved << " to " << resumed);
        CHECK(first_difference(train(resumed, kStepsBefore, kSteps, to / "latest", ""), expected) ==
              "");
      }
    }
  }
}

TEST_CASE("what compression has left out is divided evenly among another number of replicas") {
  const Quiet quiet;
  const TemporaryFolder folder;
  ZeroOptions options = adam(1);
  options.compression = Compression::bf16;
  const fs::path first = folder.path() / "first";
  const fs::path second = folder.path() / "second";
  (void)trained({.replicas = 2}, options, 0, kStepsBefore, "", first);
  (void)trained({.replicas = 3}, options, kStepsBefore, kStepsBefore, first / "latest", second);
  const auto values = [](std::string& bytes) {
    return at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size() / sizeof(float))});
  };
  auto before = tensors_of(first / "latest");
  auto after = tensors_of(second / "latest");
  const at::Tensor sum =
      values(before.at("residuals/0/scale")) + values(before.at("residuals/1/scale"));
  for (const char* name : {"residuals/0/scale", "residuals/1/scale", "residuals/2/scale"}) {
    CHECK(values(after.at(name)).equal(sum / 3));
  }
}

TEST_CASE("buffers and DataParallel with a ShardedOptimizer are restored") {
  const Quiet quiet;
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;
  const std::vector<Make> optimizers{
      [](std::vector<at::Tensor> own) {
        return std::make_unique<torch::optim::Adam>(std::move(own),
                                                    torch::optim::AdamOptions(kRate).amsgrad(true));
      },
      [](std::vector<at::Tensor> own) {
        return std::make_unique<torch::optim::RMSprop>(
            std::move(own), torch::optim::RMSpropOptions(kRate).momentum(0.9).centered(true));
      },
      [](std::vector<at::Tensor> own) {
        return std::make_unique<torch::optim::SGD>(std::move(own),
                                                   torch::optim::SGDOptions(kRate).momentum(0.9));
      }};
  for (const Make& make : optimizers) {
    const TemporaryFolder folder;
    const auto train = [&](const Placement& placement, std::int64_t first, std::int64_t end,
                           const fs::path& from, const fs::path& to) {
      return result_of_job(job_in(placement), [&] {
        torch::nn::BatchNorm1d model(5);
        DataParallel parallel(*model, "data", {.local_batch_norm = true});
        ShardedOptimizer optimizer(*model, make);
        if (!from.empty()) (void)load_checkpoint(from, {&parallel, &optimizer});
        for (std::int64_t step = first; step < end; ++step) {
          const Samples batch = samples(step, axis_index("data") * kBatch, kBatch);
          clear_gradients(*model);
          parallel.backward(
              (model->forward(batch.inputs).sum(1, true) - batch.targets).pow(2).mean());
          optimizer.step();
        }
        if (!to.empty()) save_checkpoint(to, {&parallel, &optimizer}, {.step = end});
        Parameters result = copies(*model);
        for (const auto& item : model->named_buffers()) result[item.key()] = item.value().clone();
        return result;
      });
    };
    const Placement three{.replicas = 3};
    const Parameters expected = train(three, 0, kSteps, "", "");
    (void)train(three, 0, kStepsBefore, "", folder.path());
    const Placement gloo{.replicas = 3, .backend = Backend::gloo};
    CHECK(first_difference(train(gloo, kStepsBefore, kSteps, folder.path() / "latest", ""),
                           expected) == "");
    CHECK(expected.contains("running_var"));
    const fs::path again = folder.path() / "again";
    (void)train({.replicas = 2}, kStepsBefore, kStepsBefore, folder.path() / "latest", again);
    CHECK(tensors_of(again / "latest") == tensors_of(folder.path() / "latest"));
  }
}

TEST_CASE("a training that goes back to its beginning has the optimizer's state of then: none") {
  const TemporaryFolder folder;
  run({.replicas = 2}, [&] {
    const auto values_after = [&](bool goes_back) {
      torch::nn::BatchNorm1d model(5);
      DataParallel parallel(*model, "data",
                            {.compression = Compression::bf16, .local_batch_norm = true});
      ShardedOptimizer optimizer(*model, [](std::vector<at::Tensor> own) {
        return std::make_unique<torch::optim::Adam>(std::move(own),
                                                    torch::optim::AdamOptions(kRate));
      });
      const auto step = [&](std::int64_t at) {
        const Samples batch = samples(at, axis_index("data") * kBatch, kBatch);
        clear_gradients(*model);
        parallel.backward(
            (model->forward(batch.inputs).sum(1, true) - batch.targets).pow(2).mean());
        optimizer.step();
      };
      if (goes_back) {
        save_checkpoint(folder.path(), {&parallel, &optimizer}, {.step = 0});
        for (std::int64_t at = 5; at < 8; ++at) step(at);
        (void)load_checkpoint(folder.path() / "latest", {&parallel, &optimizer});
      }
      for (std::int64_t at = 0; at < 3; ++at) step(at);
      return copies(*model);
    };
    expect(first_difference(values_after(true), values_after(false)).empty(),
           "it goes on otherwise");
  });
}

TEST_CASE("several trainings with the same names are saved together, each under its own") {
  const TemporaryFolder folder;
  run({.replicas = 3}, [&] {
    OddModel models[2];
    ZeroTrainer first(models[0], adam(2));
    ZeroTrainer second(models[1], adam(1));
    train_step(first, models[0], 0, 1, "data");
    train_step(second, models[1], 0, 1, "data");
    train_step(second, models[1], 1, 1, "data");
    const std::string refused = message_of<Error>([&] {
      save_checkpoint(folder.path(), {&first, &second}, {.step = 1});
    });
    expect(refused.find("two of the trainings have a tensor '") != std::string::npos &&
               refused.find("NamedTraining") != std::string::npos,
           refused);
    NamedTraining one("one", first);
    NamedTraining two("two", second);
    save_checkpoint(folder.path(), {&one, &two}, {.step = 1});
    const std::string saved[] = {digest_of(first), digest_of(second)};
    train_step(first, models[0], 1, 1, "data");
    train_step(second, models[1], 2, 1, "data");
    (void)load_checkpoint(folder.path() / "latest", {&two, &one});
    expect(first.steps() == 1 && second.steps() == 2, "the steps are others");
    expect(digest_of(first) == saved[0] && digest_of(second) == saved[1],
           "a training has other values");
  });
  CHECK(tensors_of(folder.path() / "latest").contains("one/steps"));
}

TEST_CASE("a checkpoint that does not fit is refused on all replicas, with all that differs") {
  const Quiet quiet;
  const TemporaryFolder folder;
  (void)trained({.replicas = 2}, adam(1), 0, kStepsBefore, "", folder.path());
  run({.replicas = 3}, [&] {
    OddModel model(38);
    ZeroOptions options = adam(2);
    options.optimizer = {.name = "sgd", .lr = kRate, .momentum = 0.9};
    ZeroTrainer trainer(model, options);
    const std::string message =
        message_of<DataError>([&] { (void)load_checkpoint(folder.path() / "latest", {&trainer}); });
    expect_contains(message, "latest does not fit this training: ");
    expect_contains(message, "'optimizer/exp_avg/part0.bias' is unexpected");
    expect_contains(message, "'optimizer/momentum_buffer/scale' is missing");
    expect_contains(message, " is F32 (");
  });
}

TEST_CASE("a damaged checkpoint is refused on all replicas before anything is restored") {
  const Quiet quiet;
  const TemporaryFolder folder;
  (void)trained({.replicas = 2}, adam(0), 0, kStepsBefore, "", folder.path());
  change_last_byte(folder.path() / "latest" / "shard-00001-of-00002.safetensors");
  run({.replicas = 3}, [&] {
    OddModel model;
    ZeroTrainer trainer(model, adam(0));
    const Parameters before = copies(model);
    const std::string message =
        message_of<DataError>([&] { (void)load_checkpoint(folder.path() / "latest", {&trainer}); });
    expect_contains(message, "shard-00001-of-00002.safetensors");
    expect(first_difference(copies(model), before).empty(), "nothing was restored");
  });
  CHECK(newest_checkpoint(folder.path()) == std::nullopt);
}

TEST_CASE("a checkpoint that can't be written is an error on all replicas, and training goes on") {
  const Quiet quiet;
  const TemporaryFolder folder;
  run({.replicas = 2}, [&] {
    OddModel model;
    ZeroTrainer trainer(model, adam(0));
    const std::string message = message_of<Error>(
        [&] { save_checkpoint(folder.path() / "none" / "below", {&trainer}, {.step = 3}); });
    expect_contains(message, "the checkpoint of step 3 can't be saved: ");
    expect_contains(message, "none/below can't be made: No such file or directory");
    train_step(trainer, model, 0, 1, "data");
    save_checkpoint(folder.path(), {&trainer}, {.step = 1});
  });
  CHECK(newest_checkpoint(folder.path()) == folder.path() / "step-00000001");
}

TEST_CASE("figures that are not finite are kept, and the name of their text is no program's") {
  const Quiet quiet;
  const TemporaryFolder folder;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  run({.replicas = 2}, [&] {
    OddModel model;
    ZeroTrainer trainer(model, adam(0));
    CheckpointSaver saver(folder.path(), {});
    saver.begin({&trainer}, {.step = 1,
                             .figures = {{"best", -kInfinity}, {"loss", std::nan("")}},
                             .texts = {{"finite", "1"}}});
    saver.finish();
    const CheckpointInfo own{.step = 1, .texts = {{"not_finite", "my own"}}};
    const std::string message = "CheckpointInfo::texts has 'not_finite'";
    expect_contains(message_of<ValueError>([&] { saver.begin({&trainer}, own); }), message);
    expect_contains(message_of<ValueError>([&] { saver.amend(own); }), message);
  });
  const fs::path saved = folder.path() / "latest";
  const CheckpointInfo info = checkpoint_info(saved);
  CHECK(info.figures.at("best") == -kInfinity);
  CHECK(std::isnan(info.figures.at("loss")));
  CHECK(info.texts == std::map<std::string, std::string>{{"finite", "1"}});
  // One that a program has saved before the name was kept for figures.
  storage::Manifest manifest = storage::CheckpointReader(saved).manifest();
  manifest.texts["not_finite"] = "my own";
  write_text(saved / "manifest.json", storage::write_manifest(manifest));
  CHECK(checkpoint_info(saved).texts.at("not_finite") == "my own");
}

TEST_CASE("what a replica tells arrives on all with the step, by any and by all") {
  const Quiet quiet;
  run({.replicas = 3}, [&] {
    OddModel model;
    ZeroTrainer trainer(model, adam(1));
    const bool is_last = axis_index("data") == 2;
    trainer.tell(is_last ? 6U : 4U);
    trainer.tell_number(is_last ? -0.1 : 1e300);
    const StepReport told = train_step(trainer, model, 0, 1, "data");
    expect(told.told_by_any == 6 && told.told_by_all == 4, "the flags arrive");
    expect(trainer.told_numbers() == std::vector<double>{1e300, 1e300, -0.1}, "and the numbers");
    const StepReport silent = train_step(trainer, model, 1, 1, "data");
    expect(silent.told_by_any == 0 && silent.told_by_all == 0, "they are told once");
    expect(trainer.told_numbers() == std::vector<double>(3, 0.0), "and so are numbers");
  });
}

TEST_CASE("a saver writes beside the training, and keeps the newest and the best") {
  const Quiet quiet;
  const TemporaryFolder folder;
  std::mutex mutex;
  std::map<std::int64_t, Parameters> expected;
  run({.replicas = 2, .backend = Backend::gloo}, [&] {
    OddModel model;
    ZeroTrainer trainer(model, adam(2));
    CheckpointSaver saver(folder.path(), {.keep = 2});
    constexpr std::uint32_t kReady = 1;
    for (std::int64_t step = 0; step < 6; ++step) {
      if (saver.is_ready()) trainer.tell(kReady);
      const StepReport report = train_step(trainer, model, step, 1, "data");
      if ((report.told_by_all & kReady) != 0) saver.advance();
      saver.begin({&trainer}, {.step = step + 1}, /*is_best=*/step == 1);
      expect(saver.pending() == step + 1, "a save is pending");
      const auto whole = trainer.whole_parameters();
      const std::lock_guard lock(mutex);
      if (axis_index("data") == 0) expected[step + 1] = copies(model);
    }
    saver.finish();
    expect(!saver.pending() && !saver.is_ready(), "none is pending");
    expect(saver.staged_bytes() > 0, "the copy is kept");
  });
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    names.insert(entry.path().filename());
  }
  CHECK(names ==
        std::set<std::string>{"step-00000002", "step-00000005", "step-00000006", "latest", "best"});
  for (const auto& [link, step] : std::map<std::string, int>{{"best", 2}, {"latest", 6}}) {
    const Parameters loaded =
        trained({.replicas = 1}, adam(0), step, step, folder.path() / link, "");
    CHECK(first_difference(loaded, expected.at(step)) == "");
  }
}
