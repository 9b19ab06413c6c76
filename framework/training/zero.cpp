#include "framework/training/zero.h"

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "framework/comm/turn.h"
#include "framework/optim/global_norm.h"
#include "framework/training/agreement.h"
#include "framework/training/backward_order.h"
#include "framework/training/block_gathering.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/gradient_hooks.h"
#include "framework/training/memory_prediction.h"
#include "framework/training/module_parameters.h"
#include "framework/training/sharded_update.h"
#include "framework/training/unused_parameters.h"

namespace lockstep {
namespace {

void check(bool holds, const std::string& message) {
  if (!holds) throw ValueError("ZeroTrainer: " + message);
}

}  // namespace

class ZeroTrainer::Implementation {
 public:
  Implementation(torch::nn::Module& module, ZeroOptions options, std::source_location where)
      : options_(std::move(options)),
        axis_(options_.axis_name),
        parameters_(module_parameters(module)),
        hooks_(parameters_.tensors,
               [this](std::size_t index, const at::Tensor& gradient) { add(index, gradient); }) {
    check_options(options_);
    check_groups(options_.optimizer, parameters_.names);
    (void)make_optimizer(options_.optimizer);
    start_alike(parameters_.all, axis_);
    queue_ = std::make_unique<AxisQueue>(axis_, options_.overlap != Overlap::off, where);
    gather_queue_ = std::make_unique<AxisQueue>(axis_, options_.overlap != Overlap::off, where);
    // What is cut must be so before the first forward.
    if (options_.stage == 3) lay_out(at::Tensor());
  }

  void backward(const at::Tensor& loss) {
    check(microbatch_ < options_.accumulate,
          lockstep::str("backward was called ", microbatch_ + 1, " times for a step of ",
                        options_.accumulate, " microbatches: call step()"));
    check(!loss.defined() || loss.requires_grad(), "the loss does not depend on any parameter");
    check(loss.defined() || !blocks_,
          "a loss is needed at stage 3, where all replicas run the blocks: without samples, one "
          "times 0");
    if (!flat_parameters_) lay_out(loss);
    note(loss);
    gradients_->begin(microbatch_ == 0, microbatch_ + 1 == options_.accumulate);
    if (loss.defined()) hooks_.backward(loss);
    const auto without = gradients_->finish(*queue_);
    if (blocks_) blocks_->end_backward();
    if (loss.defined()) unused_.add(without);
    ++microbatch_;
    if (microbatch_ == options_.accumulate) unused_.end_step(parameters_.names, steps_ + 1, axis_);
  }

  StepReport step(double lr) {
    check(microbatch_ == options_.accumulate,
          lockstep::str("step() after ", microbatch_, " of ", options_.accumulate,
                        " microbatches' backward()"));
    check(!blocks_ || !blocks_->keeps_everything(), "step() while whole_parameters() lives");
    const c10::AutoGradMode no_grad(false);
    microbatch_ = 0;
    StepReport report = judged();
    if (report.skipped && options_.non_finite == NonFinite::stop) {
      throw Error(lockstep::str(report.reason, " at step ", steps_ + 1,
                                "; training has diverged: try a smaller learning rate or "
                                "clipping"));
    }
    ++steps_;
    if (report.skipped) {
      gradients_->forget_residuals();
      return report;
    }
    ++updates_;
    const double scale =
        options_.clip_norm ? clip_scale(report.gradient_norm, *options_.clip_norm) : 1.0;
    update_->update(
        {.step = updates_, .lr = lr, .gradient_scale = scale, .clip_value = options_.clip_value});
    flat_parameters_->publish();
    // What the module was made in, and the parts of the first step that come but once.
    if (updates_ == 1) release_freed_memory();
    return report;
  }

  void visit_parameters(
      const std::function<void(const std::string& name, const at::Tensor& value)>& visit) {
    std::int64_t held_block = 0;
    std::unique_ptr<BlockGathering::Held> held;
    for (const auto& [name, parameter] : parameters_.by_name) {
      const std::int64_t block = cut_block_of(parameter);
      if (block != held_block) {
        held.reset();
        if (block != 0)
          held =
              std::make_unique<BlockGathering::Held>(blocks_, static_cast<std::size_t>(block - 1));
        held_block = block;
      }
      visit(name, parameter);
    }
  }

  std::unique_ptr<WholeParameters> whole_parameters();

  void check_agreement() {
    std::vector<std::string> names;
    std::vector<at::Tensor> tensors;
    for (std::size_t i = 0; i < parameters_.all.size(); ++i) {
      if (is_held_once(parameters_.all[i])) continue;
      names.push_back(parameters_.all_names[i]);
      tensors.push_back(parameters_.all[i]);
    }
    lockstep::check_agreement(names, tensors, axis_);
  }

  MemoryUse memory() const {
    MemoryUse use;
    if (!flat_parameters_) return use;
    use.parameters = flat_parameters_->bytes();
    use.shared_parameters = flat_parameters_->is_common() ? use.parameters : 0;
    use.gradients = gradients_->bytes();
    use.optimizer_state = update_->bytes();
    use.communication = gradients_->communication_bytes() + flat_parameters_->gathered_peak();
    return use;
  }

  std::int64_t steps() const noexcept { return steps_; }

 private:
  void add(std::size_t index, const at::Tensor& gradient) {
    if (gradient.layout() != at::kStrided) {
      throw ValueError(lockstep::str("parameter '", parameters_.names[index],
                                     "' has a gradient that is not dense: use dense ones"));
    }
    gradients_->add(index, gradient, *queue_);
    if (blocks_) blocks_->gradient_ready(index);
  }

  // Whether a loss is not finite is said by the step's last microbatch: where each replica updates
  // everything, and the norm takes no exchange, beside the backward.
  void note(const at::Tensor& loss) {
    if (loss.defined() && !std::isfinite(loss.item<double>())) bad_losses_.fill_(1);
    const bool is_last = microbatch_ + 1 == options_.accumulate;
    if (is_last && flat_parameters_->updates_all()) sent_losses_ = queue_->pmean_(bad_losses_);
  }

  // A step's report before anything is updated, the same on all replicas.
  StepReport judged() {
    if (sent_losses_) queue_->wait(*sent_losses_);
    sent_losses_.reset();
    bool is_bad_loss = bad_losses_.item<double>() != 0;
    bad_losses_.zero_();
    StepReport report{.gradient_norm = update_->gradient_norm(is_bad_loss)};
    if (!std::isfinite(report.gradient_norm)) {
      // The squares alone may be too large.
      if (const auto first = update_->first_non_finite()) {
        report.reason = "the gradient of parameter '" + parameters_.names[*first] + "'";
      }
    }
    if (report.reason.empty() && is_bad_loss) report.reason = "the loss";
    report.skipped = !report.reason.empty();
    if (report.skipped) report.reason += " is not finite";
    return report;
  }

  void lay_out(const at::Tensor& loss) {
    const c10::AutoGradMode no_grad(false);
    // What replicas hold together need not be gathered.
    const bool cuts = options_.stage == 3 && !common_zeros({1}, at::kByte, axis_).is_common;
    const FlatLayout layout(
        flat_items(parameters_.tensors, cuts ? parameters_.block_of : std::vector<std::int64_t>{}),
        agreed_backward_order(loss, parameters_.tensors, axis_), bucket_bytes(options_.bucket_mb),
        axis_size(axis_));
    flat_parameters_ = std::make_unique<FlatParameters>(parameters_.tensors, layout, axis_,
                                                        placement_of(options_.stage));
    const FlatGradientOptions how = gradient_options(options_, layout, queue_->overlaps(),
                                                     take_turns(), flat_parameters_->is_common());
    tell_what_stays(layout, how, cuts);
    gradients_ = std::make_unique<FlatGradients>(parameters_.tensors, layout, axis_, how,
                                                 queue_->overlaps());
    update_ = std::make_unique<ShardedUpdate>(options_.optimizer, layout, parameters_.names,
                                              *flat_parameters_, *gradients_, axis_);
    if (!cuts) return;
    blocks_ = std::make_shared<BlockGathering>(
        parameters_.blocks, layout, *flat_parameters_, *gather_queue_,
        [this](std::size_t bucket) { gradients_->close(bucket, *queue_); });
    for (Block* const block : parameters_.blocks) block->set_runner(blocks_);
  }

  // What a stage leaves whole, once for all replicas.
  void tell_what_stays(const FlatLayout& layout, const FlatGradientOptions& how, bool cuts) const {
    if (axis_index(axis_) != 0) return;
    if (options_.stage >= 2 && how.keeps_local && !how.takes_turns && options_.accumulate == 1) {
      log_info(lockstep::str("ZeRO stage ", options_.stage,
                             ": gradients stay whole until they are reduced, since the model has ",
                             layout.buckets().size(), " buckets; a smaller bucket_mb frees them"));
    }
    std::int64_t uncut = 0;
    for (const FlatBucket& bucket : layout.buckets()) uncut += bucket.group == 0 ? bucket.size : 0;
    if (!cuts || uncut == 0) return;
    log_warning(lockstep::str("ZeRO stage 3: about ", uncut, " of ", layout.total(),
                              " parameters are in no Block and stay whole on every replica"));
  }

  // Whether any of the axis' replicas do.
  bool take_turns() const {
    const std::int64_t own = current_turn() != nullptr ? 1 : 0;
    return pmax(at::zeros({}, at::kLong).fill_(own), axis_).item<std::int64_t>() != 0;
  }

  // The number of the block that has to be gathered for its value, or 0.
  std::int64_t cut_block_of(const at::Tensor& parameter) const {
    for (std::size_t i = 0; blocks_ && i < parameters_.tensors.size(); ++i) {
      if (parameters_.tensors[i].is_same(parameter)) return parameters_.block_of[i];
    }
    return 0;
  }

  bool is_held_once(const at::Tensor& parameter) const {
    if (cut_block_of(parameter) != 0) return true;
    return flat_parameters_ && flat_parameters_->is_common() && parameter.requires_grad();
  }

  ZeroOptions options_;
  AxisNames axis_;
  ModuleParameters parameters_;
  GradientHooks hooks_;
  std::unique_ptr<FlatParameters> flat_parameters_;
  std::unique_ptr<FlatGradients> gradients_;
  std::unique_ptr<ShardedUpdate> update_;
  std::shared_ptr<BlockGathering> blocks_;
  UnusedParameters unused_;
  std::int64_t microbatch_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t updates_ = 0;
  at::Tensor bad_losses_ = at::zeros({1}, at::kDouble);  // 1: one of the step was not finite
  std::optional<AxisQueue::Call> sent_losses_;
  // Of gradients and, apart, of parameters: the order of the ones among the others may differ
  // between replicas that do not use the same parameters. Ended before the buffers are.
  std::unique_ptr<AxisQueue> queue_;
  std::unique_ptr<AxisQueue> gather_queue_;
};

namespace {

class Whole final : public ZeroTrainer::WholeParameters {
 public:
  explicit Whole(std::shared_ptr<BlockGathering> blocks) : everything_(std::move(blocks)) {}

 private:
  BlockGathering::Everything everything_;
};

}  // namespace

std::unique_ptr<ZeroTrainer::WholeParameters> ZeroTrainer::Implementation::whole_parameters() {
  return std::make_unique<Whole>(blocks_);
}

ZeroTrainer::ZeroTrainer(torch::nn::Module& module, ZeroOptions options, std::source_location where)
    : implementation_(std::make_unique<Implementation>(module, std::move(options), where)) {}

ZeroTrainer::~ZeroTrainer() = default;

void ZeroTrainer::backward(const at::Tensor& loss) {
  implementation_->backward(loss);
}

StepReport ZeroTrainer::step(double lr) {
  return implementation_->step(lr);
}

std::unique_ptr<ZeroTrainer::WholeParameters> ZeroTrainer::whole_parameters() {
  return implementation_->whole_parameters();
}

void ZeroTrainer::visit_parameters(
    const std::function<void(const std::string& name, const at::Tensor& value)>& visit) {
  implementation_->visit_parameters(visit);
}

void ZeroTrainer::check_agreement() {
  implementation_->check_agreement();
}

MemoryUse ZeroTrainer::memory() const {
  return implementation_->memory();
}

std::int64_t ZeroTrainer::steps() const noexcept {
  return implementation_->steps();
}

}  // namespace lockstep
