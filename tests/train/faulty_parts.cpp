#include "tests/train/faulty_parts.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <signal.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/psum.h"
#include "framework/data/data.h"
#include "framework/launch/launch.h"
#include "framework/objectives/loss.h"
#include "framework/objectives/metric.h"
#include "framework/objectives/objectives.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/optimizers.h"
#include "framework/training/process_generator.h"
#include "models/model.h"

namespace lockstep::testing {
namespace {

struct FaultOptions {
  std::string fault = "none";
};

template <typename... Faults>
keys::ConfigKeys fault_keys(FaultOptions& options, const Faults&... faults) {
  return {{"fault", keys::one_of(options.fault, {"none", faults...}), "what goes wrong"}};
}

class FailingBackward : public torch::autograd::Function<FailingBackward> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*context*/,
                                               torch::autograd::tensor_list gradients) {
    return {at::zeros({7}).view({3}) + gradients[0]};
  }
};

// Where the launcher is the parent of replicas. Returns once replicas may know.
void stop_job() {
  (void)::kill(::getppid(), SIGTERM);
  while (!stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class Encoder : public torch::nn::Module {
 public:
  Encoder(std::int64_t middle, std::int64_t outputs)
      : fc1(register_module("fc1", torch::nn::Linear(1, 8))),
        fc2(register_module("fc2", torch::nn::Linear(middle, outputs))) {}

  torch::nn::Linear fc1, fc2;
};

// shape: fc2 takes 6 values of fc1's 8. view: after fc1, of a size that does not fit. dtype: fc1
// gets float64. throws: an exception of its own, after fc1. rows: one for all samples. training: in
// training mode alone. waits: as shape, behind a collective. backward: a derivative. making: there
// is no model. wide: five outputs for two classes. stop: none, but step 3 asks the job to stop.
class Faulty : public Model {
 public:
  explicit Faulty(const std::string& fault)
      : fault_(fault),
        encoder_(register_module(
            "encoder", std::make_shared<Encoder>(fault == "shape" || fault == "waits" ? 6 : 8,
                                                 fault == "wide" ? 5 : 2))) {}

  at::Tensor forward(const at::Tensor& inputs) override {
    const bool is_double = fault_ == "dtype";
    at::Tensor x = at::relu(encoder_->fc1->forward(is_double ? inputs.to(at::kDouble) : inputs));
    if (fault_ == "view") x = x.view({3, 7});
    if (fault_ == "throws") throw std::out_of_range("no such head");
    if (fault_ == "rows") x = x.narrow(0, 0, 1);
    if (fault_ == "training" && is_training()) x = x.slice(1, 0, 5);
    if (fault_ == "waits") x = x + psum(at::zeros({1}), "data");
    if (fault_ == "stop" && is_training() && c10::GradMode::is_enabled() && ++steps_ == 3)
      stop_job();
    if (fault_ == "backward") x = FailingBackward::apply(x);
    return encoder_->fc2->forward(x);
  }

 private:
  std::string fault_;
  int steps_ = 0;  // that it has been trained
  std::shared_ptr<Encoder> encoder_;
};

// Sample i is in class i % 2. target: sample 20 in class 6. gather, file: it can't be made. early:
// which already the fingerprint notices. first: as gather, of sample 0.
class FaultySet final : public Dataset {
 public:
  explicit FaultySet(std::string fault) : fault_(std::move(fault)) {}
  std::int64_t size() const override { return 24; }
  SampleType type() const override { return class_sample({1}, 2); }
  std::string sample_name(std::int64_t index) const override { return str("row-", index); }
  std::string fingerprint() const override {
    return fault_ == "early" ? Dataset::fingerprint() : "always the same";
  }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    Batch batch = empty_batch(type(), std::ssize(indices));
    for (std::int64_t i = 0; i < std::ssize(indices); ++i) {
      const std::int64_t index = indices[static_cast<std::size_t>(i)];
      const bool is_bad = index == (fault_ == "first" ? 0 : 20);
      if (is_bad && (fault_ == "gather" || fault_ == "first" || fault_ == "early"))
        throw std::out_of_range("no such line");
      if (is_bad && fault_ == "file") throw DataError("sound.wav is cut short");
      batch.inputs[i].fill_(index);
      batch.targets[i].fill_(is_bad && fault_ == "target" ? 6 : index % 2);
    }
    return batch;
  }

  std::string fault_;
};

// LibTorch's own loss, which checks targets itself. shape: of outputs that do not fit.
class FaultyLoss final : public Loss {
 public:
  explicit FaultyLoss(std::string fault) : fault_(std::move(fault)) {}
  at::Tensor mean(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return at::cross_entropy_loss(fault_ == "shape" ? outputs.t() : outputs, targets);
  }
  bool is_weighted_by_samples() const override { return true; }

 private:
  std::string fault_;
};

// Of what it counts there is no figure, or of the figure no value.
class FaultyMetric final : public Metric {
 public:
  explicit FaultyMetric(bool counts) : counts_(counts) {}
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    // Of a sample of zeros alone, which checks try, there is a figure.
    if (!counts_ && outputs.abs().sum().item<double>() > 0) throw std::domain_error("no figure");
    return at::zeros({1}, at::kDouble) + targets.sum();
  }
  double value(const at::Tensor& /*sums*/) const override { throw std::domain_error("no value"); }
  bool higher_is_better() const override { return false; }

 private:
  bool counts_;
};

// As many numbers as samples, as if they were rows.
class GrowingMetric final : public Metric {
 public:
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& /*targets*/) const override {
    return at::zeros({outputs.size(0)}, at::kDouble);
  }
  double value(const at::Tensor& sums) const override { return sums.sum().item<double>(); }
  bool higher_is_better() const override { return false; }
};

class FaultyOptimizer final : public ElementwiseOptimizer {
 public:
  FaultyOptimizer() : ElementwiseOptimizer(std::vector<std::string>{}) {}

 private:
  void run_on(const at::Tensor& parameter, const at::Tensor& gradient,
              const std::vector<at::Tensor>& /*state*/,
              const UpdateSettings& /*settings*/) const override {
    parameter.sub_(gradient.view({-1, 3}));  // 64 elements
  }
};

void throw_if_asked(std::string_view name) {
  const char* const asked = std::getenv("FAULTY_CALLBACK");
  if (asked == nullptr || asked != name) return;
  if (std::getenv("CRASHES") != nullptr) (void)std::raise(SIGSEGV);
  throw std::length_error("the list is full");
}

}  // namespace

void register_faulty_parts() {
  register_model(model_kind<FaultOptions>(
      "faulty", "throws",
      [](FaultOptions& options) {
        return fault_keys(options, "shape", "view", "dtype", "throws", "rows", "training", "waits",
                          "backward", "making", "wide", "stop");
      },
      [](const FaultOptions& options, const SampleType& /*sample*/,
         const Key& key) -> std::shared_ptr<Model> {
        if (options.fault == "making") throw std::out_of_range("no such width");
        return seeded(key.bits(), [&] { return std::make_shared<Faulty>(options.fault); });
      }));
  register_data(data_kind<FaultOptions>(
      "faulty", "throws",
      [](FaultOptions& options) {
        return fault_keys(options, "target", "gather", "file", "early", "loading", "first");
      },
      [](const FaultOptions& options, const DataContext& /*context*/) -> DataSets {
        if (options.fault == "loading") throw std::out_of_range("no such column");
        return {.train = std::make_shared<const FaultySet>(options.fault),
                .test = std::make_shared<const FaultySet>(options.fault)};
      }));
  register_loss(loss_kind<FaultOptions>(
      "faulty", "LibTorch's own",
      [](FaultOptions& options) { return fault_keys(options, "shape"); },
      [](const FaultOptions& options, const SampleType& /*sample*/) -> std::shared_ptr<const Loss> {
        return std::make_shared<FaultyLoss>(options.fault);
      }));
  register_metric({keys::choice("faulty", "throws"), [](const auto& /*loss*/) {
                     return std::make_shared<FaultyMetric>(/*counts=*/false);
                   }});
  register_metric({keys::choice("faulty_value", "throws at the end"), [](const auto& /*loss*/) {
                     return std::make_shared<FaultyMetric>(/*counts=*/true);
                   }});
  register_metric({keys::choice("growing", "has no sums"),
                   [](const auto& /*loss*/) { return std::make_shared<GrowingMetric>(); }});
  register_optimizer(optimizer_kind("faulty", "throws", [](const OptimizerOptions& /*options*/) {
    return std::make_unique<FaultyOptimizer>();
  }));
}

Callbacks faulty_callbacks() {
  return {
      .before_first_step = [](Trainer&) { throw_if_asked("before_first_step"); },
      .after_step = [](Trainer&, const StepEnd&) { throw_if_asked("after_step"); },
      .after_evaluation = [](Trainer&, const Evaluation&) { throw_if_asked("after_evaluation"); },
      .needs_loss =
          [](std::int64_t /*step*/) {
            throw_if_asked("needs_loss");
            return false;
          }};
}

}  // namespace lockstep::testing
