#include "trainers/bench/training_systems.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/replicas/machine.h"
#include "models/layers.h"
#include "trainers/bench/link.h"
#include "trainers/bench/training_loop.h"

namespace lockstep::bench {
namespace {

constexpr const char* kAxis = "replicas";
constexpr std::int64_t kImages = 4096;
constexpr int kWarmUp = 3;  // steps: the first ones also make buffers and kernels

// Images in memory, as bytes, of which a batch takes those at its indices: what peers do too.
class Images {
 public:
  explicit Images(std::uint64_t seed)
      : pixels_((uniform({kImages, kPixels}, 1, Key(seed).fold("pixels")).abs().mul(255))
                    .to(at::kByte)),
        labels_(at::arange(kImages, at::kLong).remainder(kClasses)) {}

  Batch next(std::int64_t count) {
    if (order_.numel() < next_ + count) {
      const std::vector<std::int64_t> order = permutation(Key(epoch_++), kImages);
      order_ = at::empty({kImages}, at::kLong);
      std::copy(order.begin(), order.end(), order_.data_ptr<std::int64_t>());
      next_ = 0;
    }
    const Tensor indices = order_.narrow(0, next_, count);
    next_ += count;
    return {pixels_.index_select(0, indices).to(at::kFloat).div_(255),
            labels_.index_select(0, indices)};
  }

 private:
  Tensor pixels_;  // uint8 (images, pixels)
  Tensor labels_;  // int64 (images)
  Tensor order_ = at::empty({0}, at::kLong);
  std::int64_t next_ = 0;
  std::uint64_t epoch_ = 0;
};

class Training : public Task {
 public:
  explicit Training(std::string way) : way_(std::move(way)) {}

  std::string prepare(const std::string& model, std::int64_t batch) override {
    if (batch > kImages) throw ValueError(str("a batch has at most ", kImages, " samples"));
    batch_ = batch;
    loop_ = make_training_loop(way_, model, kAxis);
    for (int i = 0; i < kWarmUp; ++i) call();
    const double value = loss_.item<double>();
    if (!std::isfinite(value)) throw Error(str(model, ": the loss is ", value));
    return "";
  }

  void barrier() override { psum_(token_, kAxis); }

  void call() override {
    clock_.start();
    const Batch batch = images_.next(batch_);
    clock_.lap(StepPart::data);
    loss_ = loop_->step(batch, clock_);
  }

  std::vector<double> parts() override {
    const StepParts parts = clock_.take();
    return {parts.begin(), parts.end()};
  }

 private:
  std::string way_;
  std::int64_t batch_ = 0;
  std::unique_ptr<TrainingLoop> loop_;
  Images images_{static_cast<std::uint64_t>(axis_index(kAxis))};
  StepClock clock_;
  Tensor loss_;
  Tensor token_ = at::zeros({1});
};

System system_of(const std::string& way, bool threads) {
  return {
      .name = "lockstep",
      .label = threads ? way + " threads" : way,
      .version = str(libtorch_version(), ", ", blas().name),
      .own = true,
      .programs = [way, threads](std::int64_t replicas, const std::filesystem::path& folder) {
        return std::vector<Program>{{{"/proc/self/exe", "worker", "training", way,
                                      threads ? "threads" : "processes", str(replicas), folder}}};
      }};
}

}  // namespace

void add_own_training_systems(const std::vector<std::int64_t>& stages,
                              const std::vector<LaunchMode>& modes, std::vector<System>& systems) {
  systems.push_back(system_of(kAlone, false));
  for (const LaunchMode mode : modes) {
    for (const std::int64_t stage : stages) {
      systems.push_back(system_of(stage_way(stage), mode == LaunchMode::threads));
    }
  }
}

int run_training_worker(const std::vector<std::string>& arguments) {
  if (arguments.size() != 4) throw ValueError("bench worker is started by bench alone");
  const std::filesystem::path folder = arguments[3];
  set_quiet(true);
  const auto replica = [&] {
    Training task(arguments[0]);
    serve(task, folder, axis_index(kAxis));
  };
  return launch(replica,
                {.replicas = std::stoll(arguments[2]),
                 .mode = arguments[1] == "threads" ? LaunchMode::threads : LaunchMode::processes,
                 .axis_name = kAxis,
                 .threads_per_replica = 1});
}

}  // namespace lockstep::bench
