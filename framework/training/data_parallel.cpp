#include "framework/training/data_parallel.h"

#include <optional>
#include <utility>

#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/axis_queue.h"
#include "framework/collectives/message.h"
#include "framework/training/agreement.h"
#include "framework/training/backward_order.h"
#include "framework/training/flat_gradients.h"
#include "framework/training/gradient_hooks.h"
#include "framework/training/module_buffers.h"
#include "framework/training/module_parameters.h"
#include "framework/training/parameter_claims.h"
#include "framework/training/random_draws.h"
#include "framework/training/unused_parameters.h"

namespace lockstep {

class DataParallel::Implementation {
 public:
  // Of `parameters` those that require a gradient are averaged; all start alike. They are those of
  // `module`, or of a tree (nullptr).
  Implementation(torch::nn::Module* module, ModuleParameters parameters, const AxisNames& axis_name,
                 const DataParallelOptions& options, std::source_location where)
      : axis_(axis_name),
        options_(options),
        made_{"DataParallel", axis_, where},
        all_(std::move(parameters)),
        claims_("DataParallel", {ParameterPart::gradients}, all_.names, all_.tensors),
        hooks_(all_.names, all_.tensors,
               {.begin =
                    [this] {
                      begin({"loss.backward()", axis_, made_.where}, {}, true);
                    },
                .ready = [this](std::size_t index,
                                const at::Tensor& gradient) { add(index, gradient); },
                .end = [this] { end_plain(); }}),
        queue_(axis_, options.overlap != Overlap::off, where) {
    const CalledFrom scope(made_);
    require(options_.bucket_mb > 0 && options_.bucket_mb <= 1e6, "DataParallel: bucket_mb is ",
            options_.bucket_mb, "; it must be above 0 and at most 1000000");
    check_same_model(all_.all_names, all_.all, axis_);
    start_alike(all_.all, axis_);
    buffers_.emplace(module, axis_, options_.buffers);
    random_draws_.emplace(module, options_.seed, options_.randomness, axis_);
  }

  void backward(const at::Tensor& loss, const BackwardOptions& options, bool is_last,
                std::source_location where) {
    const AxisCall call{is_last ? "DataParallel::backward" : "DataParallel::accumulate", axis_,
                        where};
    check_loss(loss, call);
    begin(call, loss, is_last);
    if (loss.defined()) hooks_.backward(loss, options);
    end(loss.defined());
  }

  void check_agreement(std::source_location where) {
    const AxisCall call{"DataParallel::check_agreement", axis_, where};
    const CalledFrom scope(call);
    lockstep::check_agreement(all_.all_names, all_.all, axis_);
    buffers_->check_agreement();
  }

  bool has_random_draws() const noexcept { return random_draws_->seen(); }

 private:
  // `call` is what the messages of a backward name.
  void begin(const AxisCall& call, const at::Tensor& loss, bool is_last) {
    call_ = call;
    const CalledFrom scope(*call_);
    check_still_all(all_, call);
    random_draws_->begin_backward();
    if (!gradients_) lay_out(loss);
    gradients_->begin(is_first_, is_last);
    is_last_ = is_last;
  }

  void add(std::size_t index, const at::Tensor& gradient) {
    const CalledFrom scope(*call_);
    check_dense(gradient, all_.names[index], *call_);
    gradients_->add(index, gradient);
  }

  // Of a plain backward: what .grad() holds of a parameter that it has not come to counts, too.
  void end_plain() {
    for (std::size_t i = 0; i < all_.tensors.size(); ++i) {
      const at::Tensor& gradient = all_.tensors[i].grad();
      if (gradient.defined() && !gradients_->has(i)) add(i, gradient);
    }
    end(/*has_loss=*/true);
  }

  void end(bool has_loss) {
    const CalledFrom scope(*call_);
    const auto without = gradients_->finish();
    if (has_loss) unused_.add(without);
    random_draws_->end_backward(is_last_);
    is_first_ = is_last_;
    if (!is_last_) return;
    buffers_->synchronize();
    const std::vector<bool> unused = unused_.agree(all_.names, axis_);
    unused_.end_step();
    const c10::AutoGradMode no_grad(false);
    for (std::size_t i = 0; i < all_.tensors.size(); ++i) {
      const at::Tensor& parameter = all_.tensors[i];
      // As they are, but for half types, whose means are in float32.
      parameter.mutable_grad() =
          unused[i] ? at::Tensor() : gradients_->mean_of(i).to(parameter.scalar_type());
    }
  }

  void lay_out(const at::Tensor& loss) {
    const c10::AutoGradMode no_grad(false);
    const FlatLayout layout = flat_layout(all_, agreed_backward_order(loss, all_.tensors, axis_),
                                          options_.bucket_mb, axis_size(axis_));
    gradients_ = std::make_unique<FlatGradients>(
        all_.tensors, layout, axis_,
        FlatGradientOptions{.overlap = options_.overlap, .compression = options_.compression},
        queue_);
  }

  AxisNames axis_;
  DataParallelOptions options_;
  AxisCall made_;
  ModuleParameters all_;
  ParameterClaims claims_;
  std::unique_ptr<FlatGradients> gradients_;
  GradientHooks hooks_;
  AxisQueue queue_;
  UnusedParameters unused_;
  std::optional<ModuleBuffers> buffers_;
  std::optional<RandomDraws> random_draws_;
  std::optional<AxisCall> call_;  // the backward that goes on
  bool is_first_ = true;          // it is the first one since the last reduction
  bool is_last_ = true;           // its gradients are reduced
};

DataParallel::DataParallel(torch::nn::Module& module, const AxisNames& axis_name,
                           const DataParallelOptions& options, std::source_location where)
    : implementation_(std::make_unique<Implementation>(&module, module_parameters(module),
                                                       axis_name, options, where)) {}

DataParallel::DataParallel(const std::vector<at::Tensor>& leaves, const AxisNames& axis_name,
                           const DataParallelOptions& options, std::source_location where) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    check_parameter(lockstep::str("leaf ", i), leaves[i]);
    require(leaves[i].requires_grad(), "DataParallel: leaf ", i, " requires no gradient");
  }
  implementation_ =
      std::make_unique<Implementation>(nullptr, leaf_parameters(leaves), axis_name, options, where);
}

DataParallel::~DataParallel() = default;

void DataParallel::backward(const at::Tensor& loss, const BackwardOptions& options,
                            std::source_location where) {
  implementation_->backward(loss, options, /*is_last=*/true, where);
}

void DataParallel::accumulate(const at::Tensor& loss, std::source_location where) {
  implementation_->backward(loss, {}, /*is_last=*/false, where);
}

void DataParallel::check_agreement(std::source_location where) {
  implementation_->check_agreement(where);
}

bool DataParallel::has_random_draws() const noexcept {
  return implementation_->has_random_draws();
}

}  // namespace lockstep
