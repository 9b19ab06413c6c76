#include "tests/training/random_models.h"

#include <future>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/training/batch_norm.h"
#include "framework/training/block.h"
#include "framework/training/dropout.h"
#include "framework/training/process_generator.h"
#include "framework/training/recompute.h"
#include "tests/catch.h"
#include "tests/training/zero_jobs.h"

namespace lockstep::testing {
namespace {

class DroppingPart : public Block {
 public:
  DroppingPart(std::int64_t in, std::int64_t out) {
    linear_ = register_module("linear", torch::nn::Linear(in, out));
    drop_ = register_module("drop", Dropout(0.4));
  }
  at::Tensor forward(const at::Tensor& values) override { return drop_(at::tanh(linear_(values))); }

 private:
  torch::nn::Linear linear_{nullptr};
  Dropout drop_{nullptr};
};

class DroppingModel : public SampleModel {
 public:
  DroppingModel() {
    parts_.push_back(register_module("part0", std::make_shared<DroppingPart>(5, 16)));
    parts_.push_back(register_module("part1", std::make_shared<DroppingPart>(16, 16)));
    head_ = register_module("head", torch::nn::Linear(16, 3));
    drop_ = register_module("drop", Dropout(0.2));
    register_module("same_drop", drop_);
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor values = inputs;
    for (const auto& part : parts_) values = drop_((*part)(values));
    return head_(values);
  }

 private:
  std::vector<std::shared_ptr<DroppingPart>> parts_;
  torch::nn::Linear head_{nullptr};
  Dropout drop_{nullptr};
};

class NormedModel : public SampleModel {
 public:
  NormedModel() {
    first_ = register_module("first", torch::nn::Linear(5, 7));
    norm_ = register_module("norm", torch::nn::BatchNorm1d(7));
    head_ = register_module("head", torch::nn::Linear(7, 3));
    // Sums of seven of them round.
    scale_ = register_buffer("scale", at::full({1}, 0.1));
    positions_ = register_buffer("positions", at::arange(3, at::kLong));
    register_module("stateless",
                    torch::nn::BatchNorm1d(
                        torch::nn::BatchNorm1dOptions(3).affine(false).track_running_stats(false)));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    return head_(at::tanh(norm_(first_(inputs)))) * scale_ + positions_ * 0.01;
  }

 private:
  torch::nn::Linear first_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
  torch::nn::Linear head_{nullptr};
  at::Tensor scale_;
  at::Tensor positions_;
};

class NormedPart : public Block {
 public:
  NormedPart(std::int64_t in, std::int64_t out) {
    linear_ = register_module("linear", torch::nn::Linear(in, out));
    norm_ = register_module("norm", BatchNorm(out));
    drop_ = register_module("drop", Dropout(0.2));
  }
  at::Tensor forward(const at::Tensor& values) override {
    return drop_(at::tanh(norm_(linear_(values))));
  }

 private:
  torch::nn::Linear linear_{nullptr};
  BatchNorm norm_{nullptr};
  Dropout drop_{nullptr};
};

class JointlyNormedModel : public SampleModel {
 public:
  explicit JointlyNormedModel(bool recomputes) : recomputes_(recomputes) {
    norm_ = register_module("norm", BatchNorm(5));
    part_ = register_module("part", std::make_shared<NormedPart>(5, 16));
    head_ = register_module("head", torch::nn::Linear(16, 3));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor values = norm_(inputs);
    return head_(recomputes_ ? recompute(*part_, values) : (*part_)(values));
  }

 private:
  bool recomputes_;
  BatchNorm norm_{nullptr};
  std::shared_ptr<NormedPart> part_;
  torch::nn::Linear head_{nullptr};
};

// (samples, steps, 8)
class EncoderPart : public Block {
 public:
  EncoderPart() {
    const auto layer =
        torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(8).dropout(0.2);
    encoder_ = register_module(
        "encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(layer, 2)));
    drop_ = register_module("drop", torch::nn::Dropout2d(0.3));
  }
  at::Tensor forward(const at::Tensor& values) override {
    const at::Tensor encoded = encoder_(values.transpose(0, 1)).transpose(0, 1);
    const at::Tensor dropped = drop_(encoded.unsqueeze(-1)).squeeze(-1);
    return is_training() ? dropped + at::randn_like(dropped) * 0.01 : dropped;
  }

 private:
  torch::nn::TransformerEncoder encoder_{nullptr};
  torch::nn::Dropout2d drop_{nullptr};
};

class LibTorchModel : public SampleModel {
 public:
  explicit LibTorchModel(bool recomputes) : recomputes_(recomputes) {
    embedding_ = register_module("embedding", torch::nn::Linear(1, 8));
    part_ = register_module("part", std::make_shared<EncoderPart>());
    lstm_ = register_module(
        "lstm",
        torch::nn::LSTM(torch::nn::LSTMOptions(8, 6).num_layers(2).dropout(0.3).batch_first(true)));
    head_ = register_module("head", torch::nn::Linear(6, 3));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    namespace functional = torch::nn::functional;
    at::Tensor values = embedding_(inputs.unsqueeze(-1));
    values = recomputes_ ? recompute(*part_, values) : (*part_)(values);
    values = std::get<0>(lstm_(values)).select(1, -1);
    const auto options = functional::DropoutFuncOptions().p(0.1).training(is_training());
    return head_(functional::dropout(values, options));
  }

 private:
  bool recomputes_;
  torch::nn::Linear embedding_{nullptr};
  std::shared_ptr<EncoderPart> part_;
  torch::nn::LSTM lstm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

constexpr std::int64_t kSamples = 3;

}  // namespace

std::shared_ptr<SampleModel> dropping_model() {
  return seeded(1, [] { return std::make_shared<DroppingModel>(); });
}

std::shared_ptr<SampleModel> normed_model() {
  return seeded(1, [] { return std::make_shared<NormedModel>(); });
}

std::shared_ptr<SampleModel> jointly_normed_model() {
  return seeded(1, [] { return std::make_shared<JointlyNormedModel>(false); });
}

std::shared_ptr<SampleModel> recomputed_model() {
  return seeded(1, [] { return std::make_shared<JointlyNormedModel>(true); });
}

std::shared_ptr<SampleModel> libtorch_model() {
  return seeded(1, [] { return std::make_shared<LibTorchModel>(false); });
}

std::shared_ptr<SampleModel> recomputed_libtorch_model() {
  return seeded(1, [] { return std::make_shared<LibTorchModel>(true); });
}

at::Tensor in_another_thread(const std::function<at::Tensor()>& forward) {
  return std::async(std::launch::async, forward).get();
}

at::Tensor sample_loss(SampleModel& model, std::int64_t step, std::int64_t microbatch,
                       std::int64_t replica) {
  const std::int64_t first = (replica * kMicrobatches + microbatch) * kSamples;
  const Samples batch = samples(step, first, kSamples);
  return at::mse_loss(model.forward(batch.inputs), batch.targets) / 2;
}

State state_of(const torch::nn::Module& module) {
  State state = copies(module);
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) state.emplace(item.key(), item.value().clone());
  }
  return state;
}

State trained_state(const MakeModel& make, ZeroOptions options) {
  const auto model = make();
  options.accumulate = kMicrobatches;
  options.optimizer.name = "adam";
  options.randomness = Randomness::strict;
  options.local_batch_norm = true;
  ZeroTrainer trainer(*model, options);
  for (std::int64_t step = 0; step < 4; ++step) {
    for (std::int64_t m = 0; m < kMicrobatches; ++m) {
      trainer.backward(sample_loss(*model, step, m, axis_index(options.axis_name)));
    }
    trainer.step(0.01);
  }
  trainer.check_agreement();
  const auto whole = trainer.whole_parameters();
  return state_of(*model);
}

State trained_state_in_pmap(const MakeModel& make, std::int64_t replicas, ZeroOptions options) {
  options.axis_name = "i";
  return result_of_map(replicas, [&] { return trained_state(make, options); });
}

void check_training_everywhere(const MakeModel& make) {
  const State expected = trained_state_in_pmap(make, 4, {});
  for (const int stage : {0, 1, 2, 3}) {
    const ZeroOptions options{.stage = stage, .bucket_mb = 3e-4};
    INFO("stage " << stage);
    CHECK(first_difference(trained_state_in_pmap(make, 4, options), expected) == "");
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      for (const std::int64_t workers : {4, 3, 1}) {
        INFO(workers << " workers");
        const LaunchOptions job{
            .replicas = 4, .workers = workers, .mode = LaunchMode::threads, .backend = backend};
        const auto train = [&] { return trained_state(make, options); };
        CHECK(first_difference(result_of_job(job, train), expected) == "");
      }
    }
  }
}

}  // namespace lockstep::testing
