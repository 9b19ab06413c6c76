#include "tests/train/own_parts.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <unistd.h>

#include "framework/data/data.h"
#include "framework/objectives/loss.h"
#include "framework/objectives/metric.h"
#include "framework/objectives/objectives.h"
#include "framework/training/process_generator.h"
#include "models/model.h"
#include "tests/train/faulty_parts.h"
#include "tests/train/waiting_model.h"
#include "trainers/train_main.h"

namespace {

using lockstep::Batch;
using lockstep::DataContext;
using lockstep::Dataset;
using lockstep::DataSets;
using lockstep::SampleType;

// How many samples sets have: keys of any name, as a source's own files may have.
struct ManyOptions {
  std::int64_t corpus = 6;    // the training set
  std::int64_t held_out = 4;  // the test set; 0: none
  std::int64_t file = 0;      // added to both
};

lockstep::keys::ConfigKeys many_keys(ManyOptions& options) {
  const auto count = lockstep::keys::from_to<std::int64_t>(0, 100);
  return {{"corpus", lockstep::keys::number(options.corpus, count), "samples to train on"},
          {"held_out", lockstep::keys::number(options.held_out, count), "samples to test"},
          {"file", lockstep::keys::number(options.file, count), "more samples of both"}};
}

// The alphabet again and again: sample i begins with its letter i.
class Alphabet final : public Dataset {
 public:
  std::int64_t size() const override { return 26; }
  SampleType type() const override { return lockstep::token_sample(4, 256); }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch{at::empty({count, 4}, at::kLong), at::empty({count, 4}, at::kLong)};
    auto* input = batch.inputs.data_ptr<std::int64_t>();
    auto* target = batch.targets.data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      for (std::int64_t i = index; i < index + 4; ++i) {
        *input++ = 'a' + i % 26;
        *target++ = 'a' + (i + 1) % 26;
      }
    }
    return batch;
  }
};

// Sample i is the number i, in class i % 2.
class Parity final : public Dataset {
 public:
  explicit Parity(std::int64_t size = 6) : size_(size) {}
  std::int64_t size() const override { return size_; }
  SampleType type() const override { return lockstep::class_sample({1}, 2); }
  std::vector<std::string> class_names() const override { return {"even, or 0", "odd"}; }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch{at::empty({count, 1}), at::empty({count}, at::kLong)};
    for (std::int64_t i = 0; i < count; ++i) {
      batch.inputs[i].fill_(indices[static_cast<std::size_t>(i)]);
      batch.targets[i].fill_(indices[static_cast<std::size_t>(i)] % 2);
    }
    return batch;
  }

  std::int64_t size_;
};

// The same numbers, whose classes nobody knows.
class Unknown final : public Dataset {
 public:
  std::int64_t size() const override { return 6; }
  SampleType type() const override { return known_.type(); }
  std::vector<std::string> class_names() const override { return known_.class_names(); }
  bool has_targets() const override { return false; }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    Batch batch = known_.batch(indices);
    batch.targets.fill_(-1);
    return batch;
  }

  Parity known_;
};

// Notes who asks for its fingerprint: a line of `fingerprints` in the folder of the program.
class Noted final : public Dataset {
 public:
  std::int64_t size() const override { return 6; }
  SampleType type() const override { return lockstep::value_sample({1}, 1); }
  std::string fingerprint() const override {
    std::ofstream("fingerprints", std::ios::app) << ::getpid() << '\n';
    return "always the same";
  }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    return {at::zeros({count, 1}), at::zeros({count, 1})};
  }
};

struct QuantileOptions {
  double level = 0.5;
};

lockstep::keys::ConfigKeys quantile_keys(QuantileOptions& options) {
  return {{"level", number(options.level, lockstep::keys::from_to(0.0, 1.0)),
           "the part of the targets that is to lie below the outputs"}};
}

// What is least where the outputs are a quantile of the targets.
class Quantile final : public lockstep::Loss {
 public:
  explicit Quantile(double level) : level_(level) {}
  at::Tensor mean(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const at::Tensor above = targets - outputs;
    return at::maximum(above * level_, above * (level_ - 1)).mean();
  }
  bool is_weighted_by_samples() const override { return true; }

 private:
  double level_;
};

// How far the outputs lie above the targets, in the mean. Sums: of that, and of the samples.
class Bias final : public lockstep::Metric {
 public:
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    at::Tensor sums = at::zeros({2}, at::kDouble);
    sums[0] = (outputs.detach() - targets).to(at::kDouble).sum();
    sums[1] = targets.size(0);
    return sums;
  }
  double value(const at::Tensor& sums) const override {
    return sums[0].item<double>() / sums[1].item<double>();
  }
  bool higher_is_better() const override { return false; }
};

// A layer that starts at 0.
class Zero : public lockstep::Model {
 public:
  explicit Zero(const SampleType& sample)
      : weight_(
            register_parameter("weight", at::zeros({sample.outputs(), sample.input.values()}))) {}
  at::Tensor forward(const at::Tensor& inputs) override {
    return at::linear(inputs.flatten(1), weight_);
  }

 private:
  at::Tensor weight_;
};

// Of LibTorch's own modules with dropout, on tokens.
class Ready : public lockstep::Model {
 public:
  explicit Ready(const SampleType& sample) {
    embedding_ = register_module("embedding", torch::nn::Embedding(sample.outputs(), 8));
    const auto layer =
        torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(8).dropout(0.2);
    encoder_ = register_module(
        "encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(layer, 1)));
    drop_ = register_module("drop", torch::nn::Dropout2d(0.3));
    lstm_ = register_module(
        "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(8, 8).num_layers(2).dropout(0.3)));
    head_ = register_module("head", torch::nn::Linear(8, sample.outputs()));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor values = encoder_(embedding_(inputs.transpose(0, 1)));  // steps first
    values = drop_(values.unsqueeze(-1)).squeeze(-1);
    return head_(std::get<0>(lstm_(values))).transpose(0, 1);
  }

 private:
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::TransformerEncoder encoder_{nullptr};
  torch::nn::Dropout2d drop_{nullptr};
  torch::nn::LSTM lstm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

template <typename Set>
DataSets load(const DataContext& /*context*/) {
  const auto set = std::make_shared<const Set>();
  return {.train = set, .test = set};
}

DataSets load_many(const ManyOptions& options, const DataContext& /*context*/) {
  DataSets sets{.train = std::make_shared<const Parity>(options.corpus + options.file)};
  if (options.held_out > 0) {
    sets.test = std::make_shared<const Parity>(options.held_out + options.file);
  }
  return sets;
}

DataSets load_riddle(const DataContext& /*context*/) {
  return {.train = std::make_shared<const Parity>(), .test = std::make_shared<const Unknown>()};
}

}  // namespace

namespace lockstep::testing {

int own_main(int argc, const char* const* argv) {
  if (std::getenv("RAISE_AT_EXIT") != nullptr) std::atexit([] { (void)std::raise(SIGTERM); });
  register_data(data_kind("alphabet", "its letters in order", load<Alphabet>));
  register_data(data_kind<ManyOptions>("many", "parity of more numbers", many_keys, load_many));
  register_data(data_kind("noted", "zeros", load<Noted>));
  register_data(data_kind("parity", "numbers, even or odd", load<Parity>));
  register_data(data_kind("Riddle", "parity, but not of the test", load_riddle));
  register_model(model_kind(
      "zero", "a layer that starts at 0",
      [](const SampleType& sample, const Key& /*key*/) { return std::make_shared<Zero>(sample); }));
  register_model(model_kind("loose", "a layer as LibTorch initializes it",
                            [](const SampleType& sample, const Key& /*key*/) {
                              const auto made = std::make_shared<Zero>(sample);
                              const c10::AutoGradMode no_grad(false);
                              made->parameters()[0].normal_();
                              return made;
                            }));
  register_model(model_kind("ready", "an encoder and an LSTM of LibTorch's",
                            [](const SampleType& sample, const Key& key) {
                              return seeded(key.bits(),
                                            [&] { return std::make_shared<Ready>(sample); });
                            }));
  register_loss(loss_kind<QuantileOptions>(
      "quantile", "of values, whose quantile is learnt", quantile_keys,
      [](const QuantileOptions& options, const SampleType& /*sample*/)
          -> std::shared_ptr<const Loss> { return std::make_shared<Quantile>(options.level); }));
  register_metric({keys::choice("bias", "the outputs less the targets, in the mean"),
                   [](const auto& /*loss*/) { return std::make_shared<Bias>(); }});
  register_faulty_parts();
  register_waiting_model();
  if (std::getenv("REGISTER_TWICE") != nullptr) register_faulty_parts();
  Callbacks callbacks = faulty_callbacks();
  if (std::getenv("TELL_STEPS") != nullptr) {
    callbacks.needs_loss = [](std::int64_t step) { return step % 2 == 0; };
    callbacks.after_step = [](Trainer& /*trainer*/, const StepEnd& step) {
      std::cout << "step " << step.step << " on replica " << step.replica
                << (step.loss ? " with its loss" : "") << "\n";
    };
  }
  return train_main(argc, argv, callbacks);
}

}  // namespace lockstep::testing
