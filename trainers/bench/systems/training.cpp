#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/data/dataset.h"
#include "framework/data/images.h"
#include "framework/data/sampler.h"
#include "framework/data/tensor_set.h"
#include "framework/maps/vmap.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/optim/optimizers.h"
#include "framework/timeline/recorder.h"
#include "framework/training/batch_norm.h"
#include "framework/training/zero.h"
#include "models/gpt.h"
#include "models/layers.h"
#include "models/model.h"
#include "models/resnet.h"
#include "trainers/bench/systems/tasks.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kContext = 128;
constexpr std::int64_t kVocabulary = 256;  // bytes
constexpr std::int64_t kSamples = 4096;
constexpr int kWarmUp = 3;  // steps: the first ones also make buffers and kernels
const OptimizerOptions kAdam{.name = "adam", .lr = 0.001};
constexpr const char* kOwnAxis = "alone";  // of one replica, within which nobody waits for others

bool takes_images(const std::string& model) {
  return model != "gpt";
}

SampleType sample_of(const std::string& model) {
  return takes_images(model) ? class_sample({1, kSide, kSide}, kClasses)
                             : token_sample(kContext, kVocabulary);
}

// Of a size whose step takes no longer than the others'; mlp and cnn with their defaults.
std::shared_ptr<Model> model_of(const std::string& name) {
  keys::Picked picked(name);
  if (name == "resnet") picked = keys::Picked(name, ResnetOptions{.depth = 8});
  if (name == "gpt") picked = keys::Picked(name, GptOptions{.layers = 4, .heads = 4, .width = 128});
  return make_model(picked, sample_of(name), 0);
}

// Images, or texts, in memory.
std::unique_ptr<const Dataset> samples_of(const std::string& model, bool is_augmented,
                                          std::uint64_t seed) {
  const Key key = Key(seed).fold("bytes");
  if (!takes_images(model)) {
    const Tensor tokens = uniform({kSamples, kContext + 1}, 1, key).abs().mul(255).to(at::kLong);
    return std::make_unique<TensorSet>(tokens.narrow(1, 0, kContext).contiguous(),
                                       tokens.narrow(1, 1, kContext).contiguous(),
                                       sample_of(model));
  }
  Pictures pictures{.height = kSide,
                    .width = kSide,
                    .classes = kClasses,
                    .pixels = std::vector<std::uint8_t>(kSamples * kSide * kSide),
                    .mean = {0},
                    .deviation = {1}};
  for (std::size_t i = 0; i < pictures.pixels.size(); ++i)
    pictures.pixels[i] = static_cast<std::uint8_t>(key.draw(i) & 255);
  for (std::int64_t i = 0; i < kSamples; ++i) pictures.labels.push_back(i % kClasses);
  return std::make_unique<PictureSet>(
      pictures, is_augmented ? Augmentation{.crop = 2, .flip = true} : Augmentation{}, seed);
}

// A replica's step, whose parts the job's recorder has.
class Training : public ReplicaTask {
 public:
  explicit Training(bool is_augmented) : is_augmented_(is_augmented) {}

  std::string prepare(const std::string& model, std::int64_t batch) override {
    sampler_.emplace(SamplerOptions{.size = kSamples, .batch_size = batch, .drop_last = true});
    samples_ = samples_of(model, is_augmented_, static_cast<std::uint64_t>(axis_index(kAxis)));
    track_ = timeline::track_here;
    const std::shared_ptr<Model> fresh = model_of(model);
    train(*fresh);
    model_ = fresh;
    for (int i = 0; i < kWarmUp; ++i) call();
    finish();
    const double value = loss_.item<double>();
    if (!std::isfinite(value)) throw Error(str(model, ": the loss is ", value));
    return "";
  }

  void barrier() override { lockstep::barrier(kAxis); }

  void call() override {
    const timeline::TrackScope recorded(track_);  // in the thread of a map, too
    began_ = timeline::recorder_now();
    position_ = sampler_->start_of_step(position_);
    const Batch batch = part(timeline::SpanKind::data, [&] {
      return samples_->batch(sampler_->indices(position_, 0), position_ / kSamples);
    });
    position_ = sampler_->end_of_step(position_);
    begin_step();
    const Tensor value = part(timeline::SpanKind::forward, [&] {
      return objective_->mean(model_->forward(batch.inputs), batch.targets);
    });
    backward(value);
    update();
    loss_ = value.detach();
  }

  std::vector<double> parts() override {
    const auto recording = track_->read(recorded_, timeline::Recorder::Names::left_out);
    require<Error>(recording.begun - recorded_ <= timeline::Recorder::kSpans, "the steps have ",
                   recording.begun - recorded_, " spans, and the recorder keeps ",
                   timeline::Recorder::kSpans);
    recorded_ = recording.begun;
    std::vector<double> parts(5);  // the fourth is communication, which no span has alone
    for (const auto& span : recording.spans) {
      for (const auto& [kind, part] :
           {std::pair(timeline::SpanKind::data, 0U), std::pair(timeline::SpanKind::forward, 1U),
            std::pair(timeline::SpanKind::backward, 2U),
            std::pair(timeline::SpanKind::update, 4U)}) {
        const auto seconds = static_cast<double>(span.end - span.begin) * 1e-9;
        if (span.kind == kind) parts[part] += seconds;
      }
    }
    return parts;
  }

 protected:
  /// From now on this model, in place of the one before, which lives until this returns.
  virtual void train(Model& model) = 0;
  virtual void begin_step() {}
  /// These two record spans of their kinds.
  virtual void backward(const Tensor& value) = 0;
  virtual void update() = 0;

  /// Does what the recorder has as a span.
  auto part(timeline::SpanKind kind, const auto& work) const -> decltype(work()) {
    const timeline::RecordedSpan span(track_, {.kind = kind});
    return work();
  }
  /// Since this step has begun.
  [[nodiscard]] double seconds() const {
    return static_cast<double>(timeline::recorder_now() - began_) * 1e-9;
  }

 private:
  bool is_augmented_;
  std::unique_ptr<const Dataset> samples_;
  std::optional<Sampler> sampler_;
  std::int64_t position_ = 0;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Loss> objective_ = make_cross_entropy({.ignore_index = std::nullopt});
  timeline::Recorder::Track* track_ = nullptr;
  std::uint64_t began_ = 0;
  std::uint64_t recorded_ = 0;  // the last span that parts() has told of
  Tensor loss_;
};

// The parts that a replica cannot do without: forward, backward into fresh gradients, and the
// update of its share of as many values as the model has. Further parts are the times, from the
// begin of the step, at which the gradient of each parameter is ready. BatchNorms are over an axis
// of this replica's own.
class Alone : public Training {
 public:
  Alone() : Training(/*is_augmented=*/false) {}

  void call() override {
    vmap([this] { Training::call(); }, {.axis_name = kOwnAxis, .axis_size = 1})();
  }
  std::vector<double> parts() override {
    std::vector<double> parts = Training::parts();
    for (double& ready : ready_) parts.push_back(std::exchange(ready, 0));
    return parts;
  }

 private:
  void train(Model& model) override {
    for (const auto& module : model.modules()) {
      if (auto* const norm = module->as<BatchNormImpl>()) norm->options.axis_name = kOwnAxis;
    }
    parameters_ = model.parameters();
    const std::int64_t values = sum_of(parameters_, &Tensor::numel);
    const Range share = shard(values, axis_size(kAxis), axis_index(kAxis));
    slice_ = {
        .parameter = at::zeros({share.size}), .gradient = at::zeros({share.size}), .state = {}};
    for (std::size_t i = 0; i < optimizer_->state_tensors(); ++i)
      slice_.state.push_back(at::zeros({share.size}));
    step_ = 0;
    ready_.assign(parameters_.size(), 0);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].register_hook([this, i](const Tensor&) { ready_[i] += seconds(); });
    }
  }
  void begin_step() override {
    for (const Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }
  void backward(const Tensor& value) override {
    part(timeline::SpanKind::backward, [&] { value.backward(); });
  }
  void update() override {
    part(timeline::SpanKind::update,
         [&] { optimizer_->update(slice_, {.step = ++step_, .lr = kAdam.lr}); });
  }

  std::vector<Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_ = make_optimizer(kAdam);
  OptimizerSlice slice_;
  std::int64_t step_ = 0;
  std::vector<double> ready_;  // by parameter, sums over steps
};

// Synchronized training with Adam at a stage of ZeRO.
class Synchronized : public Training {
 public:
  Synchronized(int stage, bool is_augmented) : Training(is_augmented), stage_(stage) {}

 private:
  void train(Model& model) override {
    trainer_.emplace(model, ZeroOptions{.axis_name = kAxis,
                                        .stage = stage_,
                                        .late_parameters = true,  // as `train` does
                                        .optimizer = kAdam});
  }
  void finish() override {
    if (stage_ == 1 || stage_ == 2) (void)trainer_->whole_parameters();
  }
  void backward(const Tensor& value) override { trainer_->backward(value); }
  void update() override { trainer_->step(kAdam.lr); }

  int stage_;
  std::optional<ZeroTrainer> trainer_;
};

constexpr const char* kStage = "stage ";

}  // namespace

std::unique_ptr<ReplicaTask> make_training(const std::string& way) {
  if (way == "alone") return std::make_unique<Alone>();
  return std::make_unique<Synchronized>(std::stoi(way.substr(std::string(kStage).size())),
                                        way.ends_with(" augmented"));
}

std::vector<std::int64_t> parameters_of(const std::string& model) {
  return mapped(model_of(model)->parameters(),
                [](const Tensor& parameter) { return parameter.numel(); });
}

}  // namespace lockstep::bench
