#include "trainers/bench/training_loop.h"

#include <cstddef>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/shard.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/optim/optimizer.h"
#include "framework/training/zero.h"
#include "models/loss.h"
#include "models/model.h"

namespace lockstep::bench {
namespace {

const OptimizerOptions kAdam{.name = "adam", .lr = 0.001};

std::shared_ptr<Model> model_of(const std::string& name) {
  return make_model({.name = name}, kPixels, kClasses, 0);
}

at::Tensor loss_of(Model& model, const Batch& batch) {
  return loss(lockstep::Task::classification, model.forward(batch.inputs), batch.targets);
}

// What a replica cannot do without: forward, backward into fresh gradients, and the update of its
// share of as many values as the model has.
class Alone : public TrainingLoop {
 public:
  Alone(std::shared_ptr<Model> model, std::int64_t share)
      : model_(std::move(model)),
        parameters_(model_->parameters()),
        optimizer_(make_optimizer(kAdam)),
        slice_{.parameter = at::zeros({share}, at::kFloat),
               .gradient = at::zeros({share}, at::kFloat),
               .state = {}} {
    for (std::size_t i = 0; i < optimizer_->state_tensors(); ++i)
      slice_.state.push_back(at::zeros({share}, at::kFloat));
  }

  at::Tensor step(const Batch& batch, StepClock& clock) override {
    for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    at::Tensor value = loss_of(*model_, batch);
    clock.lap(StepPart::forward);
    value.backward();
    clock.lap(StepPart::backward);
    optimizer_->update(slice_, {.step = ++step_, .lr = kAdam.lr});
    clock.lap(StepPart::update);
    return value.detach();
  }

 private:
  std::shared_ptr<Model> model_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  OptimizerSlice slice_;
  std::int64_t step_ = 0;
};

ZeroOptions zero_options(int stage, const std::string& axis_name) {
  ZeroOptions options;
  options.axis_name = axis_name;
  options.stage = stage;
  options.optimizer = kAdam;
  return options;
}

class Synchronized : public TrainingLoop {
 public:
  Synchronized(std::shared_ptr<Model> model, int stage, const std::string& axis_name)
      : model_(std::move(model)), trainer_(*model_, zero_options(stage, axis_name)) {}

  at::Tensor step(const Batch& batch, StepClock& clock) override {
    const at::Tensor value = loss_of(*model_, batch);
    clock.lap(StepPart::forward);
    trainer_.backward(value);
    clock.lap(StepPart::backward);
    trainer_.step(kAdam.lr);
    clock.lap(StepPart::update);
    return value.detach();
  }

 private:
  std::shared_ptr<Model> model_;
  ZeroTrainer trainer_;
};

}  // namespace

std::string stage_way(std::int64_t stage) {
  return str("stage ", stage);
}

const std::vector<std::int64_t>& training_stages() {
  static const std::vector<std::int64_t> stages{0, 1, 2, 3};
  return stages;
}

std::unique_ptr<TrainingLoop> make_training_loop(const std::string& way, const std::string& model,
                                                 const std::string& axis_name) {
  if (way == kAlone) {
    const Shard share = shard(parameters_of(model), axis_size(axis_name), axis_index(axis_name));
    return std::make_unique<Alone>(model_of(model), share.size);
  }
  for (const std::int64_t stage : training_stages()) {
    if (way != stage_way(stage)) continue;
    return std::make_unique<Synchronized>(model_of(model), static_cast<int>(stage), axis_name);
  }
  throw ValueError(str("bench worker: unknown way to train '", way, "'"));
}

std::int64_t parameters_of(const std::string& model) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model_of(model)->parameters()) count += parameter.numel();
  return count;
}

}  // namespace lockstep::bench
