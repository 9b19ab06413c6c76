#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/errors.h"
#include "framework/timeline/slow_link.h"
#include "framework/timeline/slow_replica.h"
#include "framework/training/averaged_parameters.h"
#include "framework/training/block_gathering.h"
#include "framework/training/deferred_parameters.h"
#include "framework/training/frozen_parameters.h"
#include "framework/training/memory_prediction.h"
#include "framework/training/module_parameters.h"
#include "framework/training/replicated_module.h"
#include "framework/training/sharded_update.h"
#include "framework/training/state.h"
#include "framework/training/zero_options.h"

namespace lockstep {

/// The outcome of a step, the same on all replicas.
struct StepReport {
  double gradient_norm = 0;       ///< of the mean gradients, before clipping
  bool skipped = false;           ///< a gradient or loss was not finite; nothing has changed
  std::string reason{};           ///< why: "the gradient of parameter 'w' is not finite"
  std::uint32_t told_by_any = 0;  ///< the flags of tell() that any replica has set …
  std::uint32_t told_by_all = 0;  ///< … and those that all have
};

/// What ZeroTrainer::step() throws, on all replicas, for a gradient or loss that is not finite.
class NonFiniteStep : public Error {
 public:
  using Error::Error;
  [[noreturn]] void rethrow_with(const std::string& prefix) const override {
    throw NonFiniteStep(prefix + what());
  }
};

/// Synchronized data-parallel training of a module by the replicas of an axis. Optimizer state,
/// gradients and parameters are cut into shards as ZeRO's stages have it (Rajbhandari et al.,
/// arXiv:1910.02054). All stages give the same bits, whatever the placement, buckets and overlap.
///
///   ZeroTrainer trainer(*model, {.stage = 2, .optimizer = {.name = "adam", .lr = 1e-3}});
///   trainer.backward(loss(model->forward(inputs), targets));
///   trainer.step(1e-3);
///
/// - **Memory.** Parameters lie in flat buckets; replicas that share memory hold one copy. The
///   module stays an ordinary one, and tensors that share a parameter's storage follow it. Half
///   types are trained on float32 masters in the optimizer's state.
/// - **Bytes sent** over a network by a replica in a step, for Ψ bytes of parameters, N replicas
///   and m microbatches: 2(N-1)/N Ψ at stages 0 to 2, (1 + 2m)(N-1)/N Ψ at stage 3. With
///   reduce_every_microbatch: 2m, 1 + m, 1 + m and 3m times (N-1)/N Ψ at stages 0, 1, 2 and 3.
/// - **New values.** Between the trainer's calls a program may replace values as a whole
///   (torch::load, set_data). If they are alike on all replicas, training goes on with them from
///   the next step. A change of dtype or shape needs a new trainer.
/// - **The start.** Parameters on the meta device get their values here, one at a time:
///   ZeroOptions::initialize.
/// - **Writes** into parameters are allowed in edit_parameters() and, if alike on all replicas,
///   until the buckets are made. Any other write is a ValueError of the next backward() or step(),
///   with every placement; after the last call it is a warning when the trainer ends. Do not write
///   past LibTorch's version counters (data_ptr(), p.data().mul_()): that is noticed only if it
///   changes one of four sampled elements of the parameter.
/// - **Left alone.** As in PyTorch, step() changes no parameter that is frozen or that no replica's
///   loss depends on. An unfrozen parameter needs a new trainer.
/// - **Buffers** differ between replicas after forwards on different samples. step() makes them
///   equal again (`buffers`; by default floating ones become their mean): an evaluation sees one
///   model. A step that is skipped gives them back what they were at the end of the last step, the
///   last restore_state() or edit_parameters(). lockstep::BatchNorm's are equal at all times.
/// - **The state** (Stateful) is parameters, frozen ones too, their averages, buffers, the
///   optimizer's state, residuals of compression, steps. Visiting or restoring it makes the buckets
///   if they are not made yet.
/// - **Stage 3.** A Block's parameters (block.h) have values while it runs, in its backward and
///   under whole_parameters(); at other times they are on the meta device. Other parameters, and
///   all where replicas share memory, always have values. With ZeroOptions::late_parameters that is
///   so at stages 1 and 2, too, from step() until the Block runs, or any other call of the trainer.
/// - **The end** gives each replica ordinary parameters again. Parameters in shards, or late ones,
///   need release_parameters() for that.
/// - **Calls.** All replicas call everything alike, in the same order; for one thread.
class ZeroTrainer : public training::ArchivedState, private training::ReplicatedModule::Receiver {
 public:
  /// All replicas start from replica 0's parameters and buffers; parameters on the meta device from
  /// what options.initialize makes. The module must live as long as the trainer is used. Throws
  /// ValueError for options out of range, parameters that are not floating or dense, that overlap
  /// or that another trainer has, for models that differ between replicas, for an Embedding with
  /// max_norm (its forward writes), for torch::nn::BatchNorm (see local_batch_norm), for values
  /// that `initialize` may not make, and as the optimizer. Error if replicas have made other
  /// values. Buckets are made now at stage 3 and for parameters on the meta device, otherwise in
  /// the first backward(): CommError if the host has not enough memory.
  ZeroTrainer(torch::nn::Module& module, ZeroOptions options,
              std::source_location where = std::source_location::current());

  using Visit = std::function<void(const std::string& name, const at::Tensor& tensor)>;

  /// The backward of a microbatch's loss, `accumulate` times a step; loss.backward() does the same,
  /// but takes no undefined loss and does not look whether the loss is finite. The gradients of a
  /// step are the sum of its losses', averaged over the replicas, or over their samples:
  /// options.samples. A replica without samples passes 0 and any loss, or an undefined one, which
  /// has no gradients. If the model has collectives inside, or blocks that stage 3 gathers, all
  /// replicas must run it: then the loss must be defined.
  /// Parameters without a gradient are named once in the log; the first call also warns of tensors
  /// that the loss needs gradients of and the module has not registered. From stage 2 on, and with
  /// overlap, a model with collectives inside needs the same ones on all replicas. After an error
  /// the trainer is of no use. ValueError for a loss that needs no gradient or has several
  /// elements, and for one microbatch too many. With create_graph stage 3 keeps what it gathers
  /// until step().
  void backward(const at::Tensor& loss, const training::BackwardOptions& options = {},
                std::source_location where = std::source_location::current());
  /// Clips (by max_norm / (norm + 1e-6), as PyTorch), updates all parameters with learning rate
  /// `lr`, and ends the step. If a gradient or any replica's loss is not finite, the step is
  /// skipped or throws NonFiniteStep, as the options say. Error unless all have the same `lr`.
  StepReport step(double lr, std::source_location where = std::source_location::current());
  /// Flags of the program's own that the next step() tells all replicas with what it sends anyway,
  /// for what they must decide alike: to stop, or that a file is written. StepReport has the
  /// answer.
  void tell(std::uint32_t flags) noexcept { told_ |= flags; }
  /// A number of this replica's that the next step() tells likewise, such as its part of a loss; 0
  /// where none is told.
  void tell_number(double number) noexcept { number_ = number; }
  /// The numbers of all replicas, in their order, that the last step() has told; also after one
  /// that threw, if last_step() counts it.
  [[nodiscard]] const std::vector<double>& told_numbers() const noexcept { return numbers_; }
  /// How long each replica's own work, all but communication, has taken between the last two
  /// step()s, in seconds, as the last one has told; zeros after the first, and outside of jobs.
  [[nodiscard]] const std::vector<double>& own_seconds() const noexcept { return own_seconds_; }
  /// Of a job on several hosts, how fast bytes have come over links between them of late, as the
  /// last step() has told: of one link a replica at most.
  [[nodiscard]] const std::vector<timeline::ToldRate>& link_rates() const noexcept {
    return link_rates_;
  }
  /// After a step's last backward and before step(): calls `visit` with each mean gradient, before
  /// clipping, in float32 for half types. One bucket is gathered at a time. All replicas together.
  /// At stage 0, with a worker for each replica, .grad() is that gradient as well (not of half
  /// types), and what is written into it alike on all replicas counts; elsewhere .grad() is
  /// undefined. A .grad() that the program sets is a ValueError of step().
  void visit_gradients(const Visit& visit,
                       std::source_location where = std::source_location::current());
  /// Calls `write`, which may write all parameters, alike on all replicas: an average of weights
  /// that is swapped in, torch::load, a constraint. In it all parameters have their values, in
  /// memory of each replica's own. It may write buffers, too. Error, naming parameter and replicas,
  /// if they came to differ. If `write` throws, nothing has changed (after the first backward()).
  /// All replicas together.
  void edit_parameters(const std::function<void()>& write,
                       std::source_location where = std::source_location::current());
  /// Calls `visit` with each parameter while it has its value, once under each of its names and in
  /// their order: for a digest or a checkpoint. At stage 3 one block is gathered at a time. All
  /// replicas together.
  void visit_parameters(const Visit& visit,
                        std::source_location where = std::source_location::current());
  /// While this lives, all parameters have their values: for an evaluation in which replicas do not
  /// run the same blocks. For reading: a write is an error later. All replicas together. No step
  /// meanwhile. It must end before the trainer.
  class WholeParameters {
   public:
    explicit WholeParameters(std::shared_ptr<void> held) : held_(std::move(held)) {}

   private:
    std::shared_ptr<void> held_;
  };
  [[nodiscard]] std::unique_ptr<WholeParameters> whole_parameters(
      std::source_location where = std::source_location::current());
  /// The same with the parameters' averages (ZeroOptions::ema_decay) in the place of their values,
  /// for an evaluation or for visit_parameters(). In memory of each replica's own while it lives.
  /// No backward meanwhile, and no other call of the trainer but visit_parameters(). Between steps.
  /// ValueError without ema_decay.
  [[nodiscard]] std::unique_ptr<WholeParameters> averaged_parameters(
      std::source_location where = std::source_location::current());

  /// After an error, wherever it was thrown: visits this replica's part of the state as it was at
  /// the end of the last step that was done, last_step(). Each replica for itself: nothing is sent.
  /// Error if there is no such state: before the first step, and where a step's update has thrown.
  /// ValueError without ZeroOptions::keeps_last_step.
  void visit_last_step(const VisitState& visit,
                       std::source_location where = std::source_location::current()) const;
  /// Steps done on this replica, in the midst of one, too: those before it.
  [[nodiscard]] std::int64_t last_step() const noexcept { return steps_; }

  /// Throws Error unless all replicas have equal parameters and buffers. The message names the
  /// first that differs and the replicas that differ from replica 0. Parameters that replicas hold
  /// once are not compared.
  void check_agreement(std::source_location where = std::source_location::current());
  /// Whether training is known to have drawn from LibTorch's process-wide generator: threads,
  /// processes and fewer workers then need not give the same bits.
  [[nodiscard]] bool has_random_draws() const noexcept { return module_.draws().seen(); }

  /// Ends the training if parameters are in shards or late: gathers them, and gives each replica
  /// ordinary parameters of its own, as otherwise the trainer's end does. The trainer can't be used
  /// any more. All replicas together.
  void release_parameters(std::source_location where = std::source_location::current());

  /// By what bucket sizes were chosen, the same on all replicas; nothing before the buckets are
  /// made, and where options.bucket_mb or the lack of overlap has decided.
  [[nodiscard]] const std::optional<LinkCost>& link_cost() const noexcept { return link_; }
  /// What this replica's buffers hold now: nothing before they are made.
  [[nodiscard]] MemoryUse memory() const;
  /// Steps done.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

 private:
  void begin(const AxisCall& call, const at::Tensor& loss) override;
  void add(std::size_t index, const at::Tensor& gradient) override;
  bool end(bool has_loss) override;
  void lay_out(const at::Tensor& loss);
  void check_own_values(const AxisCall& call) const;
  void check_not_whole(const AxisCall& call) const;
  void check_whole_step(const AxisCall& call) const;
  void begin_between_steps(const AxisCall& call);
  void archive_state(const training::StateArchive& archive, std::source_location where) override;
  void archive_parts(const training::StateArchive& archive, bool of_last_step,
                     std::int64_t& steps) const;
  void keep_buffers();
  void wait_for_late() {
    if (blocks_) blocks_->wait_for_late();
  }
  void clear_gradients() const;
  [[nodiscard]] bool check_gradients(const AxisCall& call) const;
  [[nodiscard]] StepReport judged(const training::StepVotes& votes);
  [[nodiscard]] std::int64_t cut_block_of(const at::Tensor& parameter) const;
  // nullptr where nothing is in shards.
  [[nodiscard]] std::shared_ptr<void> hold_everything() const {
    return blocks_ ? blocks_->hold_everything() : nullptr;
  }

  ZeroOptions options_;
  AxisNames axis_;
  training::ModuleParameters parameters_;
  training::ParameterClaims claims_;
  std::unique_ptr<training::FrozenParameters> frozen_;
  training::DeferredParameters deferred_;
  training::ReplicatedModule module_;
  // By parameter: the mean gradient that the program sees between backward and step.
  std::vector<at::Tensor> shown_ = std::vector<at::Tensor>(parameters_.tensors.size());
  std::vector<std::int64_t> shown_versions_;
  std::unique_ptr<training::FlatParameters> flat_parameters_;
  std::unique_ptr<training::FlatGradients> gradients_;
  std::unique_ptr<training::ShardedUpdate> update_;
  std::unique_ptr<training::AveragedParameters> averages_;
  std::shared_ptr<training::BlockGathering> blocks_;
  std::optional<LinkCost> link_;
  std::int64_t microbatch_ = 0;
  std::int64_t steps_ = 0;
  bool is_updating_ = false;  // or an update has thrown
  std::int64_t updates_ = 0;
  std::uint32_t told_ = 0;  // in the next step
  double number_ = 0;       // likewise
  std::vector<double> numbers_;
  timeline::OwnWork own_work_;
  std::vector<double> own_seconds_;
  timeline::IncomingRates incoming_rates_;
  std::vector<timeline::ToldRate> link_rates_;
  double step_loss_ = 0;              // the sum of this replica's in the step
  std::optional<double> first_loss_;  // of all replicas, in the first step
  bool is_released_ = false;
  bool shows_averages_ = false;
  // Two queues: replicas may interleave gradient and parameter calls differently. They end before
  // the buffers do.
  std::unique_ptr<collectives::AxisQueue> queue_;
  std::unique_ptr<collectives::AxisQueue> gather_queue_;
};

}  // namespace lockstep
