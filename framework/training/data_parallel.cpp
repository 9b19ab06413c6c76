#include "framework/training/data_parallel.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <ATen/ops/any.h>
#include <c10/core/GradMode.h>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/agreement.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/safe_convolutions.h"
#include "framework/training/storage_memory.h"
#include "framework/training/trainer_call.h"

namespace lockstep {
namespace {

training::ModuleParameters tree_parameters(const std::vector<at::Tensor>& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    training::check_parameter(lockstep::str("leaf ", i), leaves[i]);
    require(leaves[i].requires_grad(), "DataParallel: leaf ", i, " requires no gradient");
  }
  return training::leaf_parameters(leaves);
}

}  // namespace

DataParallel::DataParallel(torch::nn::Module* module, training::ModuleParameters parameters,
                           const AxisNames& axis_name, const DataParallelOptions& options,
                           std::source_location where)
    : axis_(axis_name),
      options_(options),
      made_{"DataParallel", axis_, where},
      all_(std::move(parameters)),
      claims_("DataParallel", {training::ParameterPart::gradients}, all_.names, all_.tensors),
      hooks_(all_.names, all_.tensors,
             {.begin =
                  [this] {
                    begin(AxisCall{"loss.backward()", axis_, made_.where}, {}, true);
                  },
              .ready = std::bind_front(&DataParallel::add, this),
              .end = std::bind_front(&DataParallel::end, this, /*has_loss=*/true)}),
      queue_(axis_, options.overlap != Overlap::off, where),
      local_norms_(module, axis_, options.local_batch_norm),
      same_gradients_(options.may_repeat_samples, options.randomness, axis_) {
  training::keep_convolutions_safe();
  const CalledFrom scope(made_);
  require(!options_.bucket_mb || is_bucket_mb(*options_.bucket_mb), "DataParallel: bucket_mb is ",
          options_.bucket_mb.value_or(0), "; it must be above 0 and at most 1000000");
  training::check_values("DataParallel", all_);
  local_norms_.check(made_);
  training::check_same_model(all_.all_names, all_.all, axis_);
  training::check_initialization("DataParallel", all_.all_names, all_.all, options_.randomness,
                                 axis_);
  training::start_alike(all_.all, axis_);
  buffers_.emplace(module, axis_, options_.buffers);
  random_draws_.emplace(module, options_.seed, options_.randomness, axis_);
}

void DataParallel::backward(const at::Tensor& loss, const training::BackwardOptions& options,
                            bool is_last, std::source_location where) {
  const AxisCall call{is_last ? "DataParallel::backward" : "DataParallel::accumulate", axis_,
                      where};
  training::check_loss(loss, call);
  if (is_first_ && backwards_ == 1) tell_sums();
  if (is_last) ++backwards_;
  begin(call, loss, is_last);
  if (loss.defined()) hooks_.backward(loss, options);
  end(loss.defined());
}

void DataParallel::check_agreement(std::source_location where) {
  const training::TrainerCall call({"DataParallel::check_agreement", axis_, where});
  lockstep::training::check_agreement(all_.all_names, all_.all, axis_);
  buffers_->check_agreement();
}

void DataParallel::archive_state(const training::StateArchive& archive,
                                 std::source_location where) {
  const training::TrainerCall call(
      {archive.restores() ? "DataParallel::restore_state" : "DataParallel::visit_state", axis_,
       where});
  call.require(is_first_, "called between accumulate() and backward(): call it between steps");
  for (std::size_t i = 0; i < all_.all.size(); ++i) {
    // Another trainer may keep its values.
    if (training::is_claimed(all_.all[i], training::ParameterPart::values)) continue;
    archive.alike(training::kParameters + all_.all_names[i], all_.all[i], axis_);
  }
  buffers_->archive_state(archive);
  if (!gradients_ && options_.compression != Compression::none) lay_out(at::Tensor());
  if (gradients_) gradients_->archive_residuals(all_, archive);
  std::int64_t steps = random_draws_->steps();
  archive.number(training::kSteps, steps, /*saves=*/axis_index(axis_) == 0);
  random_draws_->set_steps(steps);
}

// Says if .grad() still holds what the first call of backward() has left there.
void DataParallel::tell_sums() {
  if (axis_index(axis_) != 0) return;
  const bool any_left = std::ranges::any_of(all_.tensors, [](const at::Tensor& parameter) {
    return parameter.grad().defined() && parameter.grad().any().item<bool>();
  });
  if (!any_left) return;
  log_warning(
      "DataParallel::backward adds to the .grad() that is there, as loss.backward() does, and that "
      "of the last call was not zeroed: call the optimizer's zero_grad() after each step (said "
      "once)");
}

// `call` is what the messages of a backward name.
void DataParallel::begin(const AxisCall& call, const at::Tensor& loss, bool is_last) {
  call_ = call;
  const CalledFrom scope(*call_);
  training::check_still_all(all_, call);
  local_norms_.check(call);
  random_draws_->begin_backward();
  if (!gradients_) lay_out(loss);
  gradients_->begin(is_first_, is_last);
  is_last_ = is_last;
}

void DataParallel::add(std::size_t index, const at::Tensor& gradient) {
  const CalledFrom scope(*call_);
  training::check_dense(gradient, all_.names[index], *call_);
  same_gradients_.add(index, gradient);
  // What was added to the tensor that is shown has been written by autograd, as in any program.
  const at::Tensor& shown = shown_[index];
  if (shown.defined() && !gradient.is_same(shown) && training::leave_values(shown)) {
    shown_[index].reset();
  }
  gradients_->add(index, gradient);
}

// Parameters that the backward did not reach count with what .grad() holds. The buckets' memory of
// those that have no gradient at all will be written.
void DataParallel::take_rest() {
  for (std::size_t i = 0; i < all_.tensors.size(); ++i) {
    if (gradients_->has(i)) continue;
    at::Tensor& gradient = all_.tensors[i].mutable_grad();
    if (gradient.defined()) {
      add(i, std::exchange(gradient, at::Tensor()));
    } else if (shown_[i].defined() && training::leave_values(shown_[i])) {
      shown_[i].reset();
    }
  }
}

void DataParallel::end(bool has_loss) {
  const CalledFrom scope(*call_);
  take_rest();
  const auto without = gradients_->finish();
  if (has_loss || without.size() < all_.tensors.size()) unused_.add(without);
  random_draws_->end_backward(is_last_);
  is_first_ = is_last_;
  if (!is_last_) return;
  buffers_->synchronize();
  show_means(unused_.agree(all_.names, axis_));
  unused_.end_step();
  if (same_gradients_.is_watching()) {
    same_gradients_.compare(training::numbers_of_all(same_gradients_.take(), axis_));
  }
  current_environment()->member().seat->end_step(
      static_cast<std::uint64_t>(random_draws_->steps()));
}

// .grad() becomes the mean: the memory where it is, but for half types, whose means are in float32.
void DataParallel::show_means(const std::vector<bool>& unused) {
  const c10::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < all_.tensors.size(); ++i) {
    const at::Tensor& parameter = all_.tensors[i];
    if (unused[i]) {
      parameter.mutable_grad().reset();
      continue;
    }
    const bool is_written = shown_[i].defined();
    if (!is_written) shown_[i] = gradients_->mean_of(i);
    if (shown_[i].scalar_type() != parameter.scalar_type()) {
      parameter.mutable_grad() = shown_[i].to(parameter.scalar_type());
      continue;
    }
    if (is_written) shown_[i].unsafeGetTensorImpl()->bump_version();
    parameter.mutable_grad() = shown_[i];
  }
}

void DataParallel::lay_out(const at::Tensor& loss) {
  const c10::AutoGradMode no_grad(false);
  const auto link = options_.bucket_mb ? std::nullopt : training::measured_cost(queue_, axis_);
  const tree::BucketSizes sizes = training::bucket_sizes(
      options_.bucket_mb, training::bytes_of(all_.tensors), axis_size(axis_), link);
  const tree::FlatLayout layout = training::flat_layout(
      all_, training::agreed_backward_order(loss, all_.tensors, axis_), sizes, axis_size(axis_));
  gradients_ = std::make_unique<training::FlatGradients>(
      all_.tensors, layout, axis_,
      training::FlatGradientOptions{.overlap = options_.overlap,
                                    .compression = options_.compression},
      queue_);
}

DataParallel::DataParallel(torch::nn::Module& module, const AxisNames& axis_name,
                           const DataParallelOptions& options, std::source_location where)
    : DataParallel(&module, training::module_parameters(module), axis_name, options, where) {}

DataParallel::DataParallel(const std::vector<at::Tensor>& leaves, const AxisNames& axis_name,
                           const DataParallelOptions& options, std::source_location where)
    : DataParallel(nullptr, tree_parameters(leaves), axis_name, options, where) {}

void DataParallel::backward(const at::Tensor& loss, const training::BackwardOptions& options,
                            std::source_location where) {
  backward(loss, options, /*is_last=*/true, where);
}

void DataParallel::accumulate(const at::Tensor& loss, std::source_location where) {
  backward(loss, {}, /*is_last=*/false, where);
}

}  // namespace lockstep
