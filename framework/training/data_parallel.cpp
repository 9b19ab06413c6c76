#include "framework/training/data_parallel.h"

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
#include "framework/training/module_parameters.h"
#include "framework/training/unused_parameters.h"

namespace lockstep {

class DataParallel::Implementation {
 public:
  // `all` are the parameters and those that are not trained.
  Implementation(const std::vector<at::Tensor>& all, const std::vector<at::Tensor>& parameters,
                 std::vector<std::string> names, const AxisNames& axis_name,
                 const DataParallelOptions& options, std::source_location where)
      : axis_(axis_name),
        options_(options),
        parameters_(parameters),
        names_(std::move(names)),
        hooks_(parameters_,
               [this](std::size_t index, const at::Tensor& gradient) {
                 gradients_->add(index, gradient, queue_);
               }),
        queue_(axis_, options.overlap != Overlap::off, where) {
    if (!(options_.bucket_mb > 0 && options_.bucket_mb <= 1e6)) {
      throw ValueError(lockstep::str("DataParallel: bucket_mb is ", options_.bucket_mb,
                                     "; it must be above 0 and at most 1000000"));
    }
    start_alike(all, axis_);
  }

  void backward(const at::Tensor& loss, bool is_last) {
    if (loss.defined() && !loss.requires_grad()) {
      throw ValueError("DataParallel: the loss does not depend on any parameter");
    }
    if (!gradients_) lay_out(loss);
    gradients_->begin(is_first_, is_last);
    if (loss.defined()) hooks_.backward(loss);
    const auto without = gradients_->finish(queue_);
    if (loss.defined()) unused_.add(without);
    is_first_ = is_last;
    if (!is_last) return;
    unused_.end_step(names_, ++steps_, axis_);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      // As they are, but for half types, whose means are in float32.
      parameters_[i].mutable_grad() = means_[i].to(parameters_[i].scalar_type());
    }
  }

 private:
  void lay_out(const at::Tensor& loss) {
    const c10::AutoGradMode no_grad(false);
    const FlatLayout layout(flat_items(parameters_),
                            agreed_backward_order(loss, parameters_, axis_),
                            bucket_bytes(options_.bucket_mb), axis_size(axis_));
    gradients_ = std::make_unique<FlatGradients>(
        parameters_, layout, axis_,
        FlatGradientOptions{.keeps_all = true,
                            .keeps_local = true,
                            .reduces_early = queue_.overlaps() || options_.overlap == Overlap::on,
                            .compression = options_.compression},
        queue_.overlaps());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const FlatPlace& place = layout.place(i);
      means_.push_back(
          part_of(gradients_->mean(place.bucket), place.offset, parameters_[i].sizes()));
    }
  }

  AxisNames axis_;
  DataParallelOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::unique_ptr<FlatGradients> gradients_;
  GradientHooks hooks_;
  AxisQueue queue_;
  std::vector<at::Tensor> means_;
  UnusedParameters unused_;
  bool is_first_ = true;
  std::int64_t steps_ = 0;
};

DataParallel::DataParallel(torch::nn::Module& module, const AxisNames& axis_name,
                           const DataParallelOptions& options, std::source_location where) {
  ModuleParameters parameters = module_parameters(module);
  implementation_ = std::make_unique<Implementation>(
      parameters.all, parameters.tensors, std::move(parameters.names), axis_name, options, where);
}

DataParallel::DataParallel(const std::vector<at::Tensor>& leaves, std::vector<std::string> names,
                           const AxisNames& axis_name, const DataParallelOptions& options,
                           std::source_location where) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    check_parameter(lockstep::str("leaf ", i), leaves[i]);
    if (leaves[i].requires_grad()) continue;
    throw ValueError(lockstep::str("DataParallel: leaf ", i, " requires no gradient"));
  }
  const std::vector<at::Tensor> parameters = each_once(leaves);
  for (std::size_t i = 0; i < parameters.size(); ++i) names.push_back(lockstep::str("leaf ", i));
  implementation_ = std::make_unique<Implementation>(parameters, parameters, std::move(names),
                                                     axis_name, options, where);
}

DataParallel::~DataParallel() = default;

void DataParallel::backward(const at::Tensor& loss) {
  implementation_->backward(loss, true);
}

void DataParallel::accumulate(const at::Tensor& loss) {
  implementation_->backward(loss, false);
}

}  // namespace lockstep
