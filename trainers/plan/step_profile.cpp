#include "trainers/plan/step_profile.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <ATen/ops/zeros.h>

#include "framework/base/cores.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/data/sampler.h"
#include "framework/maps/pmap.h"
#include "framework/maps/tensor_memory.h"
#include "framework/timeline/slow_replica.h"
#include "framework/training/module_parameters.h"
#include "framework/training/zero.h"
#include "trainers/config/config_options.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/sample_place.h"

namespace lockstep::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongEnough = 0.5;
constexpr std::size_t kFewest = 3, kMost = 50;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One replica's steps.
class Steps {
 public:
  Steps(const Config& config, const DataSets& data)
      : config_(config),
        data_(data),
        model_(make_whole_model(config, data.train->type())),
        zero_(*model_, zero_options(config, *model_)),
        objective_(make_objective(config, data.train->type(), data.fitted)),
        sampler_(sampler_options(config, data)),
        ready_(training::module_parameters(*model_).tensors.size()) {
    const auto tensors = training::module_parameters(*model_).tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].register_hook(
          [this, i](const at::Tensor&) { ready_[i].push_back(seconds_since(backward_)); });
    }
  }

  void step() {
    const auto begin = Clock::now();
    const BatchSamples samples{*data_.train,
                               sampler_.indices(position_, axis_index(config_.launch.axis_name)),
                               "training"};
    const std::int64_t next = sampler_.end_of_step(position_);
    position_ = next + config_.data_use.batch_size * config_.launch.replicas > data_.train->size()
                    ? 0
                    : next;
    const Batch batch = made_batch(samples);
    note("data", begin);
    const auto forward = Clock::now();
    std::optional<maps::TensorMemory> memory;
    if (count_ == 1) memory.emplace();  // the first also makes what stays
    const at::Tensor loss =
        training_loss(config_, objective_, *model_, batch, [&] { return samples; }).trained;
    note("forward", forward);
    backward_ = Clock::now();
    zero_.backward(loss);
    note("backward", backward_);
    if (memory) activations_ = memory->peak();
    memory.reset();
    const auto update = Clock::now();
    (void)zero_.step(0);
    note("update", update);
    ++count_;
  }
  // What the steps so far have taken is left out.
  void forget() {
    seconds_.clear();
    for (auto& each : ready_) each.clear();
  }

  [[nodiscard]] StepProfile profile() const {
    StepProfile profile{.samples = config_.data_use.batch_size,
                        .steps = std::ssize(seconds_.at("update")),
                        .data = timeline::median_of(seconds_.at("data")),
                        .forward = timeline::median_of(seconds_.at("forward")),
                        .activations = activations_};
    for (const auto& each : ready_)
      profile.ready.push_back(each.empty() ? 0 : timeline::median_of(each));
    profile.backward = std::ranges::max(profile.ready);
    profile.rest = std::max(0.0, timeline::median_of(seconds_.at("backward")) - profile.backward);
    // They have shared it.
    profile.update =
        timeline::median_of(seconds_.at("update")) * static_cast<double>(config_.launch.replicas);
    return profile;
  }

 private:
  void note(const char* what, Clock::time_point begin) {
    seconds_[what].push_back(seconds_since(begin));
  }

  const Config& config_;
  const DataSets& data_;
  std::shared_ptr<Model> model_;
  ZeroTrainer zero_;
  Objective objective_;
  Sampler sampler_;
  std::int64_t position_ = 0;
  std::size_t count_ = 0;
  std::int64_t activations_ = 0;
  std::map<std::string, std::vector<double>> seconds_;
  std::vector<std::vector<double>> ready_;
  Clock::time_point backward_;
};

}  // namespace

StepProfile measure_steps(const Config& config, const DataSets& data, std::int64_t replicas) {
  Config own = alone(config);
  own.launch.replicas = replicas;
  own.data_use.batch_size = std::min(config.data_use.batch_size,
                                     std::max<std::int64_t>(1, data.train->size() / replicas));
  own.data_use.drop_last = false;
  require(replicas >= 1 && replicas <= data.train->size(), "the training set has ",
          counted(data.train->size(), "sample"), ", too few for ", counted(replicas, "replica"));
  StepProfile profile;
  const auto measure = [&] {
    const auto begin = Clock::now();
    Steps steps(own, data);
    steps.step();
    const double first = seconds_since(begin);
    steps.step();
    steps.forget();
    const auto measured = Clock::now();
    // Replica 0 says when it is enough.
    for (std::size_t count = 0;; ++count) {
      const bool goes_on =
          count < kFewest || (count < kMost && seconds_since(measured) < kLongEnough);
      const bool says_so = goes_on && axis_index(own.launch.axis_name) == 0;
      const at::Tensor said = at::zeros({}, at::kLong).fill_(says_so ? 1 : 0);
      if (psum(said, own.launch.axis_name).item<std::int64_t>() == 0) break;
      steps.step();
    }
    if (axis_index(own.launch.axis_name) != 0) return;
    profile = steps.profile();
    profile.first = first;
  };
  maps::TensorMemory::prepare();
  const CoreTime before = core_time();
  pmap(measure, {.axis_name = own.launch.axis_name,
                 .axis_size = replicas,
                 .threads_per_replica = own.launch.threads_per_replica})();
  const CoreTime after = core_time();
  const double waited = after.waited_s - before.waited_s;
  const double wanted = after.ran_s - before.ran_s + waited;
  if (wanted > 0) profile.waited = std::clamp(waited / wanted, 0.0, 1.0);
  profile.replicas = replicas;
  profile.threads = own.launch.threads_per_replica;
  return profile;
}

}  // namespace lockstep::plan
