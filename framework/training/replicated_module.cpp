#include "framework/training/replicated_module.h"

#include <cmath>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/batchnorm.h>

#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/training/agreement.h"
#include "framework/training/each_module.h"
#include "framework/training/safe_convolutions.h"
#include "framework/tree/error_place.h"

namespace lockstep::training {
namespace {

// Asks the other replicas, unless the options know what all have.
double weight_of(const at::Tensor& loss, const BackwardOptions& options, const AxisCall& call) {
  if (!options.samples) return 1;
  const double own = *options.samples;
  call.require(own >= 0 && std::isfinite(own) && (own == 0 || loss.defined()), "samples is ", own,
               "; it must be 0 or more, and 0 for an undefined loss");
  const double of =
      options.of ? *options.of : psum(at::full({}, own, at::kDouble), call.axes).item<double>();
  call.require(of >= own && std::isfinite(of), "of is ", of, ", less than samples, ", own);
  return sample_weight(own, of, axis_size(call.axes));
}

at::Tensor weighted(const at::Tensor& loss, double weight) {
  if (!loss.defined() || weight == 1) return loss;
  const c10::AutoGradMode with_graph(true);
  return weight > 0 ? loss * weight : loss.nan_to_num(0, 0, 0) * 0;
}

}  // namespace

void ReplicatedModule::start(Buffers rule, std::uint64_t seed) {
  const CalledFrom scope(made_);
  keep_convolutions_safe();
  hooks_.emplace(
      parameters_.names, parameters_.tensors,
      GradientHooks::Receiver{.begin =
                                  [this] {
                                    began_ = timeline::recorder_now();
                                    begin({"loss.backward()", made_.axes, made_.where}, {},
                                          /*is_weighed=*/false);
                                  },
                              .ready = std::bind_front(&ReplicatedModule::add, this),
                              .end = std::bind_front(&ReplicatedModule::end_others, this)});
  if (parameters_.module != nullptr) modes_.emplace(*parameters_.module);
  check_batch_norms(made_);
  check_same_model(parameters_.all_names, parameters_.all, made_.axes);
  check_initialization();
  start_alike(parameters_.all, made_.axes);
  buffers_.emplace(parameters_.module, made_.axes, rule);
  draws_.emplace(parameters_.module, seed, randomness_, made_.axes);
}

// LibTorch's normalize by their replica's samples alone, so results would depend on how many
// replicas there are.
void ReplicatedModule::check_batch_norms(const AxisCall& call) const {
  if (parameters_.module == nullptr || takes_local_norms_ || axis_size(call.axes) == 1) return;
  std::vector<std::string> names;
  for_each_module(*parameters_.module, [&](const std::string& name, const torch::nn::Module& each) {
    const bool is_local = each.as<torch::nn::BatchNorm1d>() != nullptr ||
                          each.as<torch::nn::BatchNorm2d>() != nullptr ||
                          each.as<torch::nn::BatchNorm3d>() != nullptr;
    if (!is_local || !each.is_training()) return;
    names.push_back(name.empty() ? "the module" : "'" + name + "'");
  });
  call.require(
      names.empty(), listed(names), names.size() == 1 ? " is a" : " are",
      " torch::nn::BatchNorm in training mode, which normalizes by each replica's own "
      "samples: use lockstep::BatchNorm; a loop of one's own has the option local_batch_norm");
}

void ReplicatedModule::check_initialization() const {
  training::check_initialization(made_.operation, parameters_.all_names, parameters_.all,
                                 randomness_, made_.axes);
}

void ReplicatedModule::backward(const at::Tensor& loss, const BackwardOptions& options,
                                const AxisCall& call) {
  std::optional<timeline::RecordedSpan> span(std::in_place, timeline::track_here, recorded());
  call_ = call;
  const CalledFrom scope(*call_);
  const double weight = weight_of(loss, options, call);
  const at::Tensor counted = weighted(loss, weight);
  begin(call, counted, options.samples.has_value());
  const auto& parameters = parameters_.tensors;
  if (weight == 0) {
    earlier_ = mapped(parameters, [](const at::Tensor& parameter) {
      return std::exchange(parameter.mutable_grad(), at::Tensor());
    });
  }
  torch_placed([&] { return lockstep::str("in the backward of step ", draws_->steps() + 1); },
               [&] {
                 if (loss.defined()) hooks_->backward(counted, options);
               });
  for (std::size_t i = 0; earlier_ && i < parameters.size(); ++i) {
    if ((*earlier_)[i].defined()) parameters[i].mutable_grad() = (*earlier_)[i];
  }
  earlier_.reset();
  const bool is_step = end(loss.defined());
  span.reset();
  if (is_step) end_step(draws_->steps());
}

void ReplicatedModule::begin(const AxisCall& call, const at::Tensor& loss, bool is_weighed) {
  call_ = call;
  const CalledFrom scope(*call_);
  earlier_.reset();  // of one that has thrown
  tell_unequal_parts(is_weighed);
  tell_modes();
  check_still_all(parameters_, call);
  check_batch_norms(call);
  draws_->begin_backward();
  receiver_.begin(call, loss);
}

void ReplicatedModule::tell_unequal_parts(bool is_weighed) {
  if (!std::exchange(has_unequal_parts, false) || is_weighed || axis_size(made_.axes) == 1) return;
  if (std::exchange(has_told_parts_, true) || axis_index(made_.axes) != 0) return;
  log_warning(lockstep::str(
      call_->operation,
      ": replicas have unequal parts of the samples, and their losses count alike, so each sample "
      "of a smaller part counts more: call backward(loss, {.samples = …}) with the number that the "
      "loss is the mean of (said once)"));
}

// Until the first backward a program sets the modes and flags of parts that it does not train.
void ReplicatedModule::tell_modes() {
  if (!modes_ || axis_index(made_.axes) != 0) return;
  const std::string change = modes_->change();
  if (!std::exchange(has_begun_, true) && change != ModuleModes::kLeft) {
    modes_.emplace(*parameters_.module);
  } else if (!change.empty()) {
    log_warning(lockstep::str(call_->operation, ": the program has left ", change,
                              ", and trains on so: call train() after an evaluation (said once)"));
    modes_.reset();
  }
}

void ReplicatedModule::add(std::size_t index, const at::Tensor& gradient) {
  const CalledFrom scope(*call_);
  call_->require(gradient.layout() == at::kStrided, "parameter '", parameters_.names[index],
                 "' has a gradient that is not dense: use dense ones");
  at::Tensor counted = gradient;
  if (earlier_) {
    counted = std::exchange((*earlier_)[index], at::Tensor());
    if (!counted.defined()) counted = at::zeros_like(gradient);
  }
  same_gradients_.add(index, counted);
  receiver_.add(index, counted);
}

bool ReplicatedModule::end(bool has_loss) {
  const CalledFrom scope(*call_);
  return receiver_.end(has_loss);
}

void ReplicatedModule::end_step(std::int64_t number) {
  current_environment()->member().slot->end_step(static_cast<std::uint64_t>(number));
  if (timeline::track_here != nullptr)
    timeline::track_here->end_step(static_cast<std::uint64_t>(number));
}

// Of a backward of the program's own, whose span is recorded once it is over: nobody tells of one
// that throws.
void ReplicatedModule::end_others() {
  const timeline::Recorder::Details details = recorded();
  const bool is_step = end(/*has_loss=*/true);
  if (timeline::track_here != nullptr) timeline::track_here->add(details, began_);
  if (is_step) end_step(draws_->steps());
}

timeline::Recorder::Details ReplicatedModule::recorded() const {
  return {.kind = timeline::SpanKind::backward,
          .id = static_cast<std::uint64_t>(draws_->steps() + 1)};
}

}  // namespace lockstep::training
