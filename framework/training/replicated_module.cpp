#include "framework/training/replicated_module.h"

#include <utility>

#include <torch/nn/modules/batchnorm.h>

#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/agreement.h"
#include "framework/training/each_module.h"
#include "framework/training/safe_convolutions.h"
#include "framework/tree/error_place.h"

namespace lockstep::training {

void ReplicatedModule::start(Buffers rule, std::uint64_t seed) {
  const CalledFrom scope(made_);
  keep_convolutions_safe();
  hooks_.emplace(
      parameters_.names, parameters_.tensors,
      GradientHooks::Receiver{.begin =
                                  [this] {
                                    began_ = watch::recorder_now();
                                    begin({"loss.backward()", made_.axes, made_.where}, {});
                                  },
                              .ready = std::bind_front(&ReplicatedModule::add, this),
                              .end = std::bind_front(&ReplicatedModule::end_others, this)});
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
  std::optional<watch::RecordedSpan> span(std::in_place, watch::track_here, recorded());
  begin(call, loss);
  torch_placed([&] { return lockstep::str("in the backward of step ", draws_->steps() + 1); },
               [&] {
                 if (loss.defined()) hooks_->backward(loss, options);
               });
  const bool is_step = end(loss.defined());
  span.reset();
  if (is_step) end_step(draws_->steps());
}

void ReplicatedModule::begin(const AxisCall& call, const at::Tensor& loss) {
  call_ = call;
  const CalledFrom scope(*call_);
  check_still_all(parameters_, call);
  check_batch_norms(call);
  draws_->begin_backward();
  receiver_.begin(call, loss);
}

void ReplicatedModule::add(std::size_t index, const at::Tensor& gradient) {
  const CalledFrom scope(*call_);
  call_->require(gradient.layout() == at::kStrided, "parameter '", parameters_.names[index],
                 "' has a gradient that is not dense: use dense ones");
  same_gradients_.add(index, gradient);
  receiver_.add(index, gradient);
}

bool ReplicatedModule::end(bool has_loss) {
  const CalledFrom scope(*call_);
  return receiver_.end(has_loss);
}

void ReplicatedModule::end_step(std::int64_t number) {
  current_environment()->member().seat->end_step(static_cast<std::uint64_t>(number));
  if (watch::track_here != nullptr) watch::track_here->end_step(static_cast<std::uint64_t>(number));
}

// Of a backward of the program's own, whose span is recorded once it is over: nobody tells of one
// that throws.
void ReplicatedModule::end_others() {
  const watch::Recorder::Details details = recorded();
  const bool is_step = end(/*has_loss=*/true);
  if (watch::track_here != nullptr) watch::track_here->add(details, began_);
  if (is_step) end_step(draws_->steps());
}

watch::Recorder::Details ReplicatedModule::recorded() const {
  return {.kind = watch::SpanKind::backward, .id = static_cast<std::uint64_t>(draws_->steps() + 1)};
}

}  // namespace lockstep::training
