#include "framework/training/data_parallel.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/logging.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/agreement.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/storage_memory.h"
#include "framework/training/trainer_call.h"
#include "framework/training/unregistered.h"

namespace lockstep {
namespace {

// `parameters`, which have values if the options are in range.
const training::ModuleParameters& checked(const training::ModuleParameters& parameters,
                                          const DataParallelOptions& options) {
  keys::check("DataParallel: bucket_mb", options.bucket_mb, kBucketMbRule);
  training::check_values("DataParallel", parameters);
  return parameters;
}

}  // namespace

training::ModuleParameters DataParallel::parameters_of(const std::vector<at::Tensor>& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    training::check_parameter(lockstep::str("leaf ", i), leaves[i]);
    require(leaves[i].requires_grad(), "DataParallel: leaf ", i, " requires no gradient");
  }
  return training::leaf_parameters(leaves);
}

DataParallel::DataParallel(training::ModuleParameters parameters, const AxisNames& axis_name,
                           const DataParallelOptions& options, std::source_location where)
    : axis_(axis_name),
      options_(options),
      all_(std::move(parameters)),
      claims_("DataParallel", {training::ParameterClaim::gradients}, all_.names, all_.tensors),
      module_(checked(all_, options_), {"DataParallel", axis_, where}, options_, *this),
      queue_(axis_, options_.overlap != Overlap::off, "reductions", where) {}

void DataParallel::backward(const at::Tensor& loss, const training::BackwardOptions& options,
                            bool is_last, std::source_location where) {
  const AxisCall call{is_last ? "DataParallel::backward" : "DataParallel::accumulate", axis_,
                      where};
  training::check_loss(loss, call);
  if (is_first_ && backwards_ == 1) tell_sums();
  if (is_last) ++backwards_;
  const ScopedValue<bool> current(is_last_, is_last);
  module_.backward(loss, options, call);
}

void DataParallel::check_agreement(std::source_location where) {
  const training::TrainerCall call({"DataParallel::check_agreement", axis_, where});
  lockstep::training::check_agreement(all_.all_names, all_.all, axis_);
  module_.buffers().check_agreement();
}

void DataParallel::archive_state(const training::StateArchive& archive,
                                 std::source_location where) {
  const training::TrainerCall call(
      {archive.restores() ? "DataParallel::restore_state" : "DataParallel::visit_state", axis_,
       where});
  call.require(is_first_, "called between accumulate() and backward(): call it between steps");
  for (std::size_t i = 0; i < all_.all.size(); ++i) {
    // Another trainer may keep its values.
    if (training::is_claimed(all_.all[i], training::ParameterClaim::values)) continue;
    archive.alike(training::kParameters + all_.all_names[i], all_.all[i], axis_);
  }
  module_.buffers().archive_state(archive);
  if (!gradients_ && options_.compression != Compression::none) lay_out(at::Tensor());
  if (gradients_) gradients_->archive_residuals(all_, archive);
  std::int64_t steps = module_.draws().steps();
  archive.number(training::kSteps, steps, /*saves=*/axis_index(axis_) == 0);
  module_.draws().set_steps(steps);
}

// Says if .grad() still holds what the first call of backward() has left there.
void DataParallel::tell_sums() const {
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

void DataParallel::begin(const AxisCall& /*call*/, const at::Tensor& loss) {
  if (!gradients_) {
    training::tell_unregistered(all_, loss, axis_);
    lay_out(loss);
  }
  gradients_->begin(is_first_, is_last_);
}

void DataParallel::add(std::size_t index, const at::Tensor& gradient) {
  // What was added to the tensor that is shown has been written by autograd, as in any program.
  const at::Tensor& shown = shown_[index];
  if (shown.defined() && !gradient.is_same(shown) && training::leave_values(shown)) {
    shown_[index].reset();
  }
  gradients_->add(index, gradient);
}

// Parameters that the backward did not reach count with what .grad() holds. The buckets' memory of
// those that have no gradient at all will be written; returns their indices.
std::vector<std::size_t> DataParallel::take_rest() {
  std::vector<std::size_t> without;
  for (std::size_t i = 0; i < all_.tensors.size(); ++i) {
    if (gradients_->has(i)) continue;
    at::Tensor& gradient = all_.tensors[i].mutable_grad();
    if (gradient.defined()) {
      module_.add(i, std::exchange(gradient, at::Tensor()));
      continue;
    }
    without.push_back(i);
    if (shown_[i].defined() && training::leave_values(shown_[i])) shown_[i].reset();
  }
  return without;
}

bool DataParallel::end(bool has_loss) {
  const auto without = take_rest();
  training::UnusedParameters& unused = module_.unused();
  if (has_loss || without.size() < all_.tensors.size()) unused.add(without);
  if (is_last_) gradients_->add(all_.tensors.size(), vote_.fill_(unused.any() ? 1 : 0));
  (void)gradients_->finish();
  module_.draws().end_backward(is_last_);
  is_first_ = is_last_;
  if (!is_last_) return false;
  module_.buffers().synchronize();
  show_means();
  unused.end_step();
  training::SameGradients& same = module_.same_gradients();
  if (same.is_watching()) same.compare(training::numbers_of_all(same.take(), axis_));
  return true;
}

// .grad() becomes the mean: the memory where it is, but for half types, whose means are in float32.
void DataParallel::show_means() {
  const c10::AutoGradMode no_grad(false);
  std::vector<bool> unused(all_.tensors.size(), false);
  const bool any_unused = gradients_->mean_of(all_.tensors.size()).item<double>() != 0;
  if (any_unused) unused = module_.unused().agree(all_.names, axis_);
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
  const auto link = options_.bucket_mb ? std::nullopt : training::link_cost(queue_);
  std::vector<std::size_t> order = training::agreed_backward_order(loss, all_.tensors, axis_);
  vote_ = at::zeros({1}, order.empty() ? at::kFloat : all_.tensors[order.back()].scalar_type());
  order.push_back(order.size());
  training::ModuleParameters laid_out = all_;
  laid_out.tensors.push_back(vote_);
  const training::BufferPlan plan(
      training::flat_layout(laid_out, order, options_.bucket_mb, link, axis_size(axis_)),
      {.overlap = options_.overlap, .compression = options_.compression}, axis_index(axis_),
      queue_.overlaps());
  gradients_ = std::make_unique<training::FlatGradients>(laid_out.tensors, plan, axis_, queue_);
}

DataParallel::DataParallel(torch::nn::Module& module, const AxisNames& axis_name,
                           const DataParallelOptions& options, std::source_location where)
    : DataParallel(training::module_parameters(module), axis_name, options, where) {}

}  // namespace lockstep
