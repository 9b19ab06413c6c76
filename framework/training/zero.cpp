#include "framework/training/zero.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/comm/run_lock.h"
#include "framework/launch/launch.h"
#include "framework/maps/tensor_memory.h"
#include "framework/optim/global_norm.h"
#include "framework/timeline/recorder.h"
#include "framework/training/agreement.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/buffer_plan.h"
#include "framework/training/keyed_draws.h"
#include "framework/training/storage_memory.h"
#include "framework/training/trainer_call.h"
#include "framework/training/unregistered.h"

namespace lockstep {
namespace {

std::string microbatches_text(std::int64_t count) {
  return count == 1 ? "one microbatch" : lockstep::str(count, " microbatches");
}

ZeroOptions checked(ZeroOptions options) {
  check_options(options);
  (void)make_optimizer(options.optimizer);
  return options;
}

void check_learning_rates(const std::vector<training::StepVote>& votes, const AxisCall& call) {
  for (std::size_t replica = 1; replica < votes.size(); ++replica) {
    call.require(votes[replica].lr == votes[0].lr, "the learning rate is ", votes[0].lr,
                 " on replica 0 and ", votes[replica].lr, " on replica ", replica,
                 "; it must be the same on all");
  }
}

// Logs once, for all replicas, what a stage leaves whole.
void tell_what_stays(const ZeroOptions& options, const training::BufferPlan& plan, bool cuts) {
  const tree::FlatLayout& layout = plan.layout;
  if (axis_index(options.axis_name) != 0) return;
  if (options.stage >= 2 && plan.options.way == training::GradientWay::kept &&
      options.accumulate == 1) {
    log_info(lockstep::str("ZeRO stage ", options.stage,
                           ": gradients stay whole until they are reduced, since the model has ",
                           counted(std::ssize(layout.buckets()), "bucket"),
                           "; a smaller bucket_mb frees them"));
  }
  std::int64_t uncut = 0;
  for (const tree::FlatBucket& bucket : layout.buckets())
    uncut += bucket.group == 0 ? bucket.size : 0;
  if (!cuts || uncut == 0) return;
  // A norm or two beside the blocks is as it should be.
  const bool matters = uncut > layout.total() / 20;
  (matters ? log_warning : log_info)(
      lockstep::str("ZeRO stage 3: about ", uncut, " of ", counted(layout.total(), "value"),
                    " of parameters are in no Block and stay whole on every replica"));
}

// Logs once, for all replicas, which buckets were chosen.
void tell_buckets(const tree::FlatLayout& layout, const LinkCost& link, const AxisNames& axis) {
  if (axis_index(axis) != 0) return;
  std::int64_t largest = 0;
  for (const tree::FlatBucket& bucket : layout.buckets()) {
    largest = std::max(largest, bucket.bytes(training::gradient_dtype(bucket)));
  }
  log_info(lockstep::str("gradients travel in ", counted(std::ssize(layout.buckets()), "bucket"),
                         " of up to ", text_of_bytes(largest), ": a call takes ",
                         std::lround(link.call_s * 1e6), " us, and ",
                         std::lround(link.bytes_per_s / 1e6), " MB are averaged in a second"));
}

}  // namespace

ZeroTrainer::ZeroTrainer(torch::nn::Module& module, ZeroOptions options, std::source_location where)
    : options_(checked(std::move(options))),
      axis_(options_.axis_name),
      parameters_(training::module_parameters(module)),
      claims_("ZeroTrainer",
              {training::ParameterClaim::values, training::ParameterClaim::gradients},
              parameters_.names, parameters_.tensors),
      frozen_(std::make_unique<training::FrozenParameters>(parameters_, axis_)),
      deferred_(parameters_, options_.initialize),
      module_(parameters_, {"ZeroTrainer", axis_, where}, options_, *this) {
  const training::TrainerCall call({"ZeroTrainer", axis_, where});
  check_groups(options_.optimizer, parameters_.names);
  keep_buffers();
  const bool overlap = options_.overlap != Overlap::off;
  queue_ = std::make_unique<collectives::AxisQueue>(axis_, overlap, "reductions", where);
  gather_queue_ = std::make_unique<collectives::AxisQueue>(axis_, overlap, "gathers", where);
  // Parameters must be cut before the first forward, and have values in it.
  if (options_.stage == 3 || deferred_.any()) lay_out(at::Tensor());
  if (deferred_.any()) {
    deferred_.make_values(options_.initialize, *update_, *flat_parameters_, *frozen_, axis_);
    module_.check_initialization();
  }
  options_.initialize = nullptr;
}

void ZeroTrainer::backward(const at::Tensor& loss, const training::BackwardOptions& options,
                           std::source_location where) {
  const AxisCall call{"ZeroTrainer::backward", axis_, where};
  training::check_loss(loss, call);
  call.require(
      loss.defined() || !blocks_ || !blocks_->is_cut(),
      "a loss is needed at stage 3, where all replicas run the blocks: without samples, any "
      "with {.samples = 0}");
  module_.backward(loss, options, call);
}

StepReport ZeroTrainer::step(double lr, std::source_location where) {
  std::optional<timeline::RecordedSpan> span(
      std::in_place, timeline::track_here,
      timeline::Recorder::Details{.kind = timeline::SpanKind::update,
                                  .id = static_cast<std::uint64_t>(steps_ + 1)});
  const training::TrainerCall call({"ZeroTrainer::step", axis_, where});
  check_whole_step(call);
  call.require(std::isfinite(lr), "the learning rate is ", lr);
  check_not_whole(call);
  blocks_->end_step();
  training::StepVote own{
      .lr = lr,
      .loss = std::exchange(step_loss_, 0),
      .has_replaced = flat_parameters_->check(call),
      .has_unused = module_.unused().any(),
      .has_edited_gradients = check_gradients(call),
      .told = std::exchange(told_, 0),
      .gradients = module_.same_gradients().take(),
      .number = std::exchange(number_, 0),
      .own_seconds = own_work_.next(timeline::track_here),
      .link = incoming_rates_.next(timeline::track_here, static_cast<int>(launch_host()))};
  const training::StepVotes votes = update_->exchange(own);
  numbers_ = mapped(votes.votes, &training::StepVote::number);
  own_seconds_ = mapped(votes.votes, &training::StepVote::own_seconds);
  link_rates_ = filtered(mapped(votes.votes, &training::StepVote::link),
                         [](const timeline::ToldRate& told) { return told.rate > 0; });
  check_learning_rates(votes.votes, call);
  module_.same_gradients().compare(mapped(votes.votes, &training::StepVote::gradients));
  if (votes.any(&training::StepVote::has_replaced)) {
    update_->refresh_masters(flat_parameters_->adopt(call));
  }
  if (votes.any(&training::StepVote::has_edited_gradients)) {
    lockstep::training::check_agreement(parameters_.names, shown_, axis_);
  }
  std::vector<bool> skipped(parameters_.tensors.size(), false);
  if (votes.any(&training::StepVote::has_unused))
    skipped = module_.unused().agree(parameters_.names, axis_);
  module_.unused().end_step();
  // The gradients of the step have been used.
  microbatch_ = 0;
  clear_gradients();
  for (const at::Tensor& shown : shown_) {
    if (shown.defined()) training::leave_values(shown);
  }
  shown_.assign(shown_.size(), at::Tensor());
  StepReport report = judged(votes);
  const double loss = sum_of(votes.votes, &training::StepVote::loss);
  if (!first_loss_) first_loss_ = loss;
  report.told_by_all = ~0U;
  for (const training::StepVote& vote : votes.votes) {
    report.told_by_any |= vote.told;
    report.told_by_all &= vote.told;
  }
  if (report.skipped && options_.non_finite == NonFinite::stop) {
    throw NonFiniteStep(
        lockstep::str(report.reason, " at step ", steps_ + 1,
                      std::isnan(*first_loss_) || loss <= *first_loss_
                          ? "; look for a division by 0, or a root or logarithm of 0"
                          : "; training has diverged: try a smaller learning rate or clipping"));
  }
  if (report.skipped) {
    gradients_->forget_residuals();
    module_.buffers().restore_kept();
    ++steps_;
  } else {
    module_.buffers().synchronize();
    keep_buffers();
    const double scale =
        options_.clip_norm ? clip_scale(report.gradient_norm, *options_.clip_norm) : 1.0;
    is_updating_ = true;
    if (averages_) averages_->start();
    update_->update({.lr = lr, .gradient_scale = scale, .clip_value = options_.clip_value},
                    skipped);
    if (averages_) averages_->add();
    gradients_->end_step();
    ++steps_;
    is_updating_ = false;
    blocks_->publish();
    // The memory in which the module was made, and parts of the first step that come but once.
    if (updates_++ == 0) maps::TensorMemory::release();
  }
  span.reset();
  module_.end_step(steps_);
  return report;
}

void ZeroTrainer::visit_gradients(const Visit& visit, std::source_location where) {
  const AxisCall call{"ZeroTrainer::visit_gradients", axis_, where};
  check_whole_step(call);
  const c10::AutoGradMode no_grad(false);
  const tree::FlatLayout& layout = flat_parameters_->layout();
  for (std::size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
    const at::Tensor& own = gradients_->mean(bucket);
    at::Tensor mean = own;
    if (!gradients_->has_whole_means()) {
      const CalledFrom scope(call);
      mean = at::empty({layout.buckets()[bucket].size}, own.options());
      all_gather_into(mean, own, axis_);
    }
    for (const std::size_t item : layout.buckets()[bucket].items) {
      const at::Tensor lent =
          training::lent_part(mean, layout.place(item).offset, parameters_.tensors[item].sizes());
      visit(parameters_.names[item], lent);
      training::leave_values(lent);
    }
  }
}

void ZeroTrainer::edit_parameters(const std::function<void()>& write, std::source_location where) {
  const AxisCall call{"ZeroTrainer::edit_parameters", axis_, where};
  const ScopedValue same_draws(training::draw_keys, training::DrawKeys::alike);
  check_own_values(call);
  if (!flat_parameters_) {
    // Until the first backward each replica has its own.
    const c10::AutoGradMode no_grad(false);
    write();
    keep_buffers();
    const CalledFrom scope(call);
    return lockstep::training::check_agreement(parameters_.all_names, parameters_.all, axis_);
  }
  wait_for_late();
  (void)flat_parameters_->check(call);
  const auto held = hold_everything();
  const auto changed = flat_parameters_->edit(write, call);
  update_->refresh_masters(changed);
  keep_buffers();
}

void ZeroTrainer::release_parameters(std::source_location where) {
  if (!flat_parameters_) return;
  const training::TrainerCall call({"ZeroTrainer::release_parameters", axis_, where});
  check_own_values(call);
  check_not_whole(call);
  wait_for_late();
  (void)flat_parameters_->check(call);
  if (blocks_->is_needed()) {
    for (Block* const block : parameters_.blocks) block->set_runner(nullptr);
  }
  blocks_->gather_everything();
  averages_.reset();
  update_.reset();
  gradients_.reset();
  flat_parameters_.reset();
  blocks_.reset();
  is_released_ = true;
}

void ZeroTrainer::visit_parameters(const Visit& visit, std::source_location where) {
  const AxisCall call{"ZeroTrainer::visit_parameters", axis_, where};
  wait_for_late();
  std::int64_t held_block = 0;
  std::shared_ptr<void> held;
  for (const auto& [name, parameter] : parameters_.by_name) {
    const CalledFrom scope(call);
    const std::int64_t block = cut_block_of(parameter);
    if (block != held_block) {
      held.reset();
      if (block != 0) held = blocks_->hold(static_cast<std::size_t>(block - 1));
      held_block = block;
    }
    visit(name, parameter);
  }
}

std::unique_ptr<ZeroTrainer::WholeParameters> ZeroTrainer::whole_parameters(
    std::source_location where) {
  const training::TrainerCall call({"ZeroTrainer::whole_parameters", axis_, where});
  wait_for_late();
  return std::make_unique<WholeParameters>(hold_everything());
}

std::unique_ptr<ZeroTrainer::WholeParameters> ZeroTrainer::averaged_parameters(
    std::source_location where) {
  const training::TrainerCall call({"ZeroTrainer::averaged_parameters", axis_, where});
  call.require(options_.ema_decay.has_value(), "the option ema_decay is not set");
  begin_between_steps(call);
  std::shared_ptr<void> held = hold_everything();
  const std::size_t buckets = flat_parameters_->layout().buckets().size();
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const at::Tensor memory = flat_parameters_->memory_for_others(bucket);
    averages_->gather_into(memory, bucket);
    flat_parameters_->lend(bucket, memory);
  }
  shows_averages_ = true;
  const auto end = [this, buckets, held](void*) {
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) flat_parameters_->take_back(bucket);
    shows_averages_ = false;
  };
  return std::make_unique<WholeParameters>(std::shared_ptr<void>(nullptr, end));
}

void ZeroTrainer::check_own_values(const AxisCall& call) const {
  call.require(!shows_averages_, "called while averaged_parameters() lives");
}

void ZeroTrainer::check_not_whole(const AxisCall& call) const {
  call.require(!blocks_ || !blocks_->keeps_everything(), "called while whole_parameters() lives");
}

// Before the state is visited or restored.
void ZeroTrainer::begin_between_steps(const AxisCall& call) {
  check_own_values(call);
  call.require(!is_released_, "after release_parameters()");
  call.require(microbatch_ == 0, "called after the backward of ", microbatches_text(microbatch_),
               ": call it between steps");
  check_not_whole(call);
  if (!flat_parameters_) {
    lockstep::training::check_agreement(parameters_.all_names, parameters_.all, axis_);
    lay_out(at::Tensor());
    return;
  }
  wait_for_late();
  update_->refresh_masters(flat_parameters_->adopt_replaced(call));
}

void ZeroTrainer::archive_state(const training::StateArchive& archive, std::source_location where) {
  const training::TrainerCall call(
      {archive.restores() ? "ZeroTrainer::restore_state" : "ZeroTrainer::visit_state", axis_,
       where});
  begin_between_steps(call);
  archive_parts(archive, /*of_last_step=*/false, steps_);
  if (!archive.restores()) return;
  flat_parameters_->publish();
  keep_buffers();
  module_.draws().set_steps(steps_);
}

void ZeroTrainer::visit_last_step(const VisitState& visit, std::source_location where) const {
  const training::TrainerCall call({"ZeroTrainer::visit_last_step", axis_, where});
  call.require(options_.keeps_last_step, "the option keeps_last_step is not set");
  if (!flat_parameters_) throw Error(lockstep::str(call, ": no step has been done"));
  lockstep::require<Error>(!is_updating_, call, ": step ", steps_ + 1,
                           " has changed the parameters in part");
  std::int64_t steps = steps_;
  archive_parts(training::StateArchive(visit), /*of_last_step=*/true, steps);
}

void ZeroTrainer::archive_parts(const training::StateArchive& archive, bool of_last_step,
                                std::int64_t& steps) const {
  update_->archive_state(archive);
  if (averages_) averages_->archive_state(archive);
  frozen_->archive_state(archive);
  of_last_step ? module_.buffers().archive_kept(archive) : module_.buffers().archive_state(archive);
  gradients_->archive_residuals(parameters_, archive);
  archive.number(training::kSteps, steps, /*saves=*/axis_index(axis_) == 0);
}

void ZeroTrainer::check_agreement(std::source_location where) {
  const training::TrainerCall call({"ZeroTrainer::check_agreement", axis_, where});
  wait_for_late();
  const bool is_common = flat_parameters_ && flat_parameters_->is_common();
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < parameters_.all.size(); ++i) {
    const at::Tensor& parameter = parameters_.all[i];
    if (cut_block_of(parameter) != 0 || (is_common && parameter.requires_grad())) continue;
    names.push_back(parameters_.all_names[i]);
    tensors.push_back(parameter);
  }
  lockstep::training::check_agreement(names, tensors, axis_);
  module_.buffers().check_agreement();
}

MemoryUse ZeroTrainer::memory() const {
  if (!flat_parameters_) return {};
  MemoryUse use = flat_parameters_->use();
  const MemoryUse gradients = gradients_->use();
  use.gradients = gradients.gradients;
  use.communication += gradients.communication;
  use.optimizer_state = update_->bytes() + frozen_->bytes() + (averages_ ? averages_->bytes() : 0);
  use.initialization = deferred_.largest_bytes();
  return use;
}

void ZeroTrainer::begin(const AxisCall& call, const at::Tensor& loss) {
  call.require(!is_released_, "after release_parameters()");
  check_own_values(call);
  call.require(microbatch_ < options_.accumulate, "backward was called ", microbatch_ + 1,
               " times for a step of ", microbatches_text(options_.accumulate), ": call step()");
  if (flat_parameters_) {
    wait_for_late();  // a forward may have left out some
    (void)flat_parameters_->check(call);
  } else {
    lockstep::training::check_agreement(parameters_.all_names, parameters_.all, axis_);
    lay_out(loss);
  }
  if (steps_ == 0 && microbatch_ == 0) training::tell_unregistered(parameters_, loss, axis_);
  if (loss.defined()) step_loss_ += loss.item<double>();
  gradients_->begin(microbatch_ == 0, microbatch_ + 1 == options_.accumulate);
  blocks_->begin_backward();
  if (loss.defined()) clear_gradients();
}

void ZeroTrainer::add(std::size_t index, const at::Tensor& gradient) {
  gradients_->add(index, gradient);
  blocks_->gradient_ready(index);
}

bool ZeroTrainer::end(bool has_loss) {
  const auto without = gradients_->finish();
  blocks_->end_backward();
  has_loss ? module_.unused().add(without) : clear_gradients();
  ++microbatch_;
  module_.draws().end_backward(microbatch_ == options_.accumulate);
  if (microbatch_ < options_.accumulate || !gradients_->has_whole_means()) return false;
  const c10::AutoGradMode no_grad(false);
  shown_versions_.clear();
  for (std::size_t i = 0; i < parameters_.tensors.size(); ++i) {
    const at::Tensor& parameter = parameters_.tensors[i];
    shown_[i] = gradients_->mean_of(i);
    shown_versions_.push_back(shown_[i]._version());
    // A half type's is in float32.
    if (shown_[i].scalar_type() == parameter.scalar_type()) parameter.mutable_grad() = shown_[i];
  }
  return false;
}

// Whether the program has written gradients that it was shown; it must not have set any others.
bool ZeroTrainer::check_gradients(const AxisCall& call) const {
  bool any_edited = false;
  for (std::size_t i = 0; i < parameters_.tensors.size(); ++i) {
    const at::Tensor& parameter = parameters_.tensors[i];
    const bool is_shown = shown_[i].defined() && shown_[i].scalar_type() == parameter.scalar_type();
    call.require(is_shown ? parameter.grad().is_same(shown_[i]) : !parameter.grad().defined(),
                 "the .grad() of parameter '", parameters_.names[i],
                 "' is not the trainer's, which would go on without it: write into it in place, at "
                 "stage 0, or use clip_norm and clip_value; visit_gradients() shows all");
    if (is_shown && shown_[i]._version() != shown_versions_[i]) any_edited = true;
  }
  return any_edited;
}

void ZeroTrainer::check_whole_step(const AxisCall& call) const {
  call.require(!is_released_, "after release_parameters()");
  call.require(microbatch_ == options_.accumulate, "called after ",
               microbatch_ == 0 ? "no backward" : counted(microbatch_, "backward"),
               "; a step takes that of ", microbatches_text(options_.accumulate),
               ": call backward(loss) before");
}

// A step's report before anything is updated, the same on all replicas.
StepReport ZeroTrainer::judged(const training::StepVotes& votes) {
  StepReport report{.gradient_norm = votes.gradient_norm};
  if (!std::isfinite(report.gradient_norm)) {
    if (const auto first = update_->first_non_finite()) {
      report.reason = "the gradient of parameter '" + parameters_.names[*first] + "'";
    } else {
      report.gradient_norm = update_->norm_of_large();
    }
  }
  const auto is_bad = [](const auto& vote) { return !std::isfinite(vote.loss); };
  if (report.reason.empty() && std::ranges::any_of(votes.votes, is_bad)) report.reason = "the loss";
  report.skipped = !report.reason.empty();
  if (report.skipped) report.reason += " is not finite";
  return report;
}

void ZeroTrainer::lay_out(const at::Tensor& loss) {
  const c10::AutoGradMode no_grad(false);
  // Parameters that replicas hold together need not be gathered.
  const bool is_common = common_zeros({1}, at::kByte, axis_).holders.size() == 1;
  const bool cuts = options_.stage == 3 && !is_common;
  if (!options_.bucket_mb) link_ = training::link_cost(*queue_);
  const tree::FlatLayout layout = training::flat_layout(
      parameters_, training::agreed_backward_order(loss, parameters_.tensors, axis_),
      options_.bucket_mb, link_, axis_size(axis_), cuts);
  const bool takes_turns = training::replicas_where(comm::current_run_lock() != nullptr, axis_) > 0;
  const training::BufferPlan plan = training::plan_of_stage(options_, layout,
                                                            {.replica = axis_index(axis_),
                                                             .overlaps = queue_->overlaps(),
                                                             .takes_turns = takes_turns,
                                                             .is_common = is_common});
  tell_what_stays(options_, plan, cuts);
  if (link_) tell_buckets(layout, *link_, axis_);
  flat_parameters_ = std::make_unique<training::FlatParameters>(parameters_.names,
                                                                parameters_.tensors, plan, axis_);
  gradients_ = std::make_unique<training::FlatGradients>(parameters_.tensors, plan, axis_, *queue_);
  update_ = std::make_unique<training::ShardedUpdate>(options_.optimizer, plan, parameters_,
                                                      *flat_parameters_, *gradients_, axis_);
  if (options_.ema_decay) {
    averages_ = std::make_unique<training::AveragedParameters>(
        *options_.ema_decay, options_.ema_warmup, plan, parameters_, *update_, axis_);
  }
  // Replicas that take turns would hand over in the midst of forwards, and all of their activations
  // would be there at one time.
  const bool may_be_late =
      options_.late_parameters && options_.stage > 0 && !takes_turns && !is_common;
  blocks_ = std::make_shared<training::BlockGathering>(parameters_, *flat_parameters_, *gradients_,
                                                       *gather_queue_, may_be_late);
  if (!blocks_->is_needed()) return;
  for (Block* const block : parameters_.blocks) block->set_runner(blocks_);
}

// What a skipped step, or one that throws, goes back to.
void ZeroTrainer::keep_buffers() {
  if (options_.non_finite == NonFinite::skip || options_.keeps_last_step) module_.buffers().keep();
}

void ZeroTrainer::clear_gradients() const {
  for (const at::Tensor& parameter : parameters_.tensors) parameter.mutable_grad().reset();
}

// The number of the block that has to be gathered for its value, or 0.
std::int64_t ZeroTrainer::cut_block_of(const at::Tensor& parameter) const {
  if (!blocks_ || !blocks_->is_cut()) return 0;
  for (std::size_t i = 0; i < parameters_.tensors.size(); ++i) {
    if (parameters_.tensors[i].is_same(parameter)) return parameters_.block_of[i];
  }
  return 0;
}

}  // namespace lockstep
