#include "framework/training/replicated_module.h"

#include "framework/training/agreement.h"
#include "framework/training/safe_convolutions.h"

namespace lockstep::training {

void ReplicatedModule::start(Buffers rule, std::uint64_t seed) {
  const CalledFrom scope(made_);
  keep_convolutions_safe();
  hooks_.emplace(parameters_.names, parameters_.tensors,
                 GradientHooks::Receiver{
                     .begin =
                         [this] {
                           begin({"loss.backward()", made_.axes, made_.where}, {});
                         },
                     .ready = std::bind_front(&ReplicatedModule::add, this),
                     .end = std::bind_front(&ReplicatedModule::end, this, /*has_loss=*/true)});
  local_norms_.check(made_);
  check_same_model(parameters_.all_names, parameters_.all, made_.axes);
  check_initialization();
  start_alike(parameters_.all, made_.axes);
  buffers_.emplace(parameters_.module, made_.axes, rule);
  draws_.emplace(parameters_.module, seed, randomness_, made_.axes);
}

void ReplicatedModule::check_initialization() const {
  training::check_initialization(made_.operation, parameters_.all_names, parameters_.all,
                                 randomness_, made_.axes);
}

void ReplicatedModule::backward(const at::Tensor& loss, const BackwardOptions& options,
                                const AxisCall& call) {
  begin(call, loss);
  if (loss.defined()) hooks_->backward(loss, options);
  end(loss.defined());
}

void ReplicatedModule::begin(const AxisCall& call, const at::Tensor& loss) {
  call_ = call;
  const CalledFrom scope(*call_);
  check_still_all(parameters_, call);
  local_norms_.check(call);
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

void ReplicatedModule::end(bool has_loss) {
  const CalledFrom scope(*call_);
  receiver_.end(has_loss);
}

}  // namespace lockstep::training
