#include "framework/training/batch_norm.h"

#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/in_place.h"
#include "framework/training/run_record.h"
#include "framework/training/uncounted_samples.h"

namespace lockstep {
namespace {

using torch::autograd::variable_list;

// In which an input of type `type` is computed.
at::ScalarType computed_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// `tensor` as LibTorch's kernels are fast on it.
at::Tensor dense(const at::Tensor& tensor, at::ScalarType type, at::MemoryFormat format) {
  return tensor.to(type).contiguous(format);
}

at::Tensor as_type(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.to(type) : tensor;
}

// (x - mean) / sqrt(var + eps) * weight + bias, for each channel.
at::Tensor normalized(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& mean, const at::Tensor& var, double eps) {
  if (x.numel() == 0) return x.clone();  // the kernel divides by it
  return std::get<0>(
      at::native_batch_norm(x, weight, bias, mean, var, /*training=*/false, 0.0, eps));
}

// Of the samples that count, of all replicas. Float64.
struct Statistics {
  at::Tensor mean;
  at::Tensor var;  // biased
  double count = 0;
};

// The replicas' statistics are combined by their counts: Chan, Golub, LeVeque, Updating Formulae
// and a Pairwise Algorithm for Computing Sample Variances, 1979. Every replica adds them in the
// same order. All replicas together.
Statistics statistics_of_all(const at::Tensor& x, const AxisNames& axis) {
  const std::int64_t channels = x.size(1);
  const at::Tensor own = at::zeros({2 * channels + 1}, at::kDouble);
  const std::int64_t count = training::are_samples_uncounted ? 0 : x.numel() / channels;
  if (count > 0) {
    const auto [mean, var] = at::batch_norm_update_stats(x, {}, {}, 0.0);
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels).copy_(var);
    own.narrow(0, 2 * channels, 1).fill_(count);
  }
  const std::int64_t replicas = axis_size(axis);
  const at::Tensor all = at::empty({replicas, 2 * channels + 1}, at::kDouble);
  all_gather_into(all, own, axis);

  Statistics result{.mean = at::zeros({channels}, at::kDouble),
                    .var = at::zeros({channels}, at::kDouble)};
  auto* const means = result.mean.data_ptr<double>();
  auto* const vars = result.var.data_ptr<double>();
  const auto* const parts = all.data_ptr<double>();
  const auto part_of = [&](std::int64_t replica) { return parts + replica * (2 * channels + 1); };
  for (std::int64_t r = 0; r < replicas; ++r) result.count += part_of(r)[2 * channels];
  if (result.count == 0) return result;
  for (std::int64_t r = 0; r < replicas; ++r) {
    const double share = part_of(r)[2 * channels] / result.count;
    for (std::int64_t c = 0; c < channels; ++c) means[c] += share * part_of(r)[c];
  }
  for (std::int64_t r = 0; r < replicas; ++r) {
    const double share = part_of(r)[2 * channels] / result.count;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double distance = part_of(r)[c] - means[c];
      vars[c] += share * (part_of(r)[channels + c] + distance * distance);
    }
  }
  return result;
}

class BatchNormBackward final : public torch::autograd::Node {
 public:
  BatchNormBackward(const at::Tensor& input, const at::Tensor& weight, at::Tensor mean,
                    at::Tensor var, double count, double eps, AxisNames axis)
      : input_(input, /*is_output=*/false),
        weight_(weight, /*is_output=*/false),
        mean_(std::move(mean)),
        var_(std::move(var)),
        count_(count),
        eps_(eps),
        counts_(!training::are_samples_uncounted && input.numel() > 0),
        needs_input_(input.requires_grad()),
        axis_(std::move(axis)),
        identity_(current_environment()->identity()) {}

  std::string name() const override { return "lockstep::BatchNormBackward"; }

  void release_variables() override {
    input_.reset_data();
    weight_.reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    const AxisCall call{"the backward of lockstep::BatchNorm", axis_,
                        std::source_location::current()};
    call.require(!c10::GradMode::is_enabled(), "it has no second derivative (create_graph)");
    const auto identity = identity_.lock();
    const Environment* const here = current_environment();
    if (!identity || here == nullptr || here->identity() != identity) {
      throw NameError(call.text() + " runs outside the replica that its forward ran in");
    }
    const CalledFrom scope(call);
    const at::Tensor input = input_.unpack();
    const at::Tensor weight = weight_.unpack();
    const at::ScalarType type = mean_.scalar_type();
    const at::MemoryFormat format = input.suggest_memory_format();
    const at::Tensor x = dense(input, type, format);

    // With y = weight (x - mean) / std + bias: the sums of dL/dy (x - mean) / std and of dL/dy.
    const std::int64_t channels = x.size(1);
    at::Tensor dy;
    at::Tensor own_sums = at::zeros({2 * channels}, at::kDouble);
    if (counts_ && gradients[0].defined()) {
      dy = dense(gradients[0], type, format);
      const auto [nothing, scaled, plain] = at::native_batch_norm_backward(
          dy, x, {}, mean_, var_, {}, {}, /*train=*/false, eps_, {false, true, true});
      own_sums.narrow(0, 0, channels).copy_(scaled);
      own_sums.narrow(0, channels, channels).copy_(plain);
    }
    variable_list results(3);
    if (weight.defined()) {
      results[1] = own_sums.narrow(0, 0, channels).to(weight.scalar_type());
      results[2] = own_sums.narrow(0, channels, channels).to(weight.scalar_type());
    }
    if (!needs_input_) return results;

    // dL/dx = weight / std (dL/dy - mean(dL/dy) - (x - mean) / std mean(dL/dy (x - mean) / std)),
    // with means over all replicas.
    const at::Tensor sums = own_sums.clone();
    psum_(sums, axis_);
    if (!counts_) {
      results[0] = at::zeros_like(input);
      return results;
    }
    if (!dy.defined()) dy = at::zeros_like(x);
    const at::Tensor means = (sums / count_).to(type);
    at::Tensor scale = (var_ + eps_).rsqrt();
    if (weight.defined()) scale = scale * weight.to(type);
    const at::Tensor slope = -scale * means.narrow(0, 0, channels);
    const at::Tensor shift = -scale * means.narrow(0, channels, channels);
    std::vector<std::int64_t> for_each_channel(static_cast<std::size_t>(x.dim()), 1);
    for_each_channel[1] = channels;
    results[0] = normalized(x, slope, shift, mean_, var_, eps_)
                     .addcmul_(dy, scale.view(for_each_channel))
                     .to(input.scalar_type());
    return results;
  }

 private:
  torch::autograd::SavedVariable input_;
  torch::autograd::SavedVariable weight_;
  at::Tensor mean_;
  at::Tensor var_;
  double count_;
  double eps_;
  bool counts_;  // whether this replica's samples do
  bool needs_input_;
  AxisNames axis_;
  std::weak_ptr<const int> identity_;
};

}  // namespace

BatchNormImpl::BatchNormImpl(const BatchNormOptions& its_options) : options(its_options) {
  require(options.channels > 0, "BatchNorm: channels is ", options.channels,
          "; it must be above 0");
  require(options.eps > 0, "BatchNorm: eps is ", options.eps, "; it must be above 0");
  require(!options.momentum || (*options.momentum >= 0 && *options.momentum <= 1),
          "BatchNorm: momentum is ", options.momentum.value_or(0), "; it must be in [0, 1]");
  BatchNormImpl::reset();
}

void BatchNormImpl::reset() {
  const std::int64_t channels = options.channels;
  if (options.affine) {
    weight = register_parameter("weight", at::ones({channels}));
    bias = register_parameter("bias", at::zeros({channels}));
  }
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor BatchNormImpl::forward(const at::Tensor& input) {
  require(input.is_floating_point() && input.dim() >= 2 && input.dim() <= 5 &&
              input.size(1) == options.channels,
          "BatchNorm: the input must be floating and (N, ", options.channels,
          "), with up to three more dimensions, not ", input.scalar_type(), " ", input.sizes());
  if (!is_training()) return evaluated(input);
  const AxisNames axis = options.axis_name ? *options.axis_name
                                           : trainer_position("lockstep::BatchNorm",
                                                              "give it BatchNormOptions::axis_name")
                                                 ->axis_name;
  const AxisCall call{"lockstep::BatchNorm", axis, std::source_location::current()};
  const CalledFrom scope(call);
  const bool requires_grad = c10::GradMode::is_enabled() &&
                             (input.requires_grad() ||
                              (options.affine && (weight.requires_grad() || bias.requires_grad())));
  at::Tensor output;
  Statistics statistics;
  at::Tensor mean;
  at::Tensor var;
  {
    const c10::AutoGradMode no_grad(false);
    const at::ScalarType type = computed_type(input.scalar_type());
    const at::Tensor x = dense(input, type, input.suggest_memory_format());
    statistics = statistics_of_all(x, axis);
    call.require(statistics.count != 1,
                 "all replicas together have one value for each channel; in training mode there "
                 "must be more");
    mean = statistics.mean.to(type);
    var = statistics.var.to(type);
    output = normalized(x, as_type(weight, type), as_type(bias, type), mean, var, options.eps)
                 .to(input.scalar_type());
    if (statistics.count > 0 && !training::RecordedRun::is_repeated()) {
      update_running(statistics.mean, statistics.var, statistics.count);
    }
  }
  if (!requires_grad) return output;
  const auto node = collectives::make_node<BatchNormBackward>(input, weight, mean, var,
                                                              statistics.count, options.eps, axis);
  node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
  torch::autograd::set_history(output, node);
  return output;
}

void BatchNormImpl::update_running(const at::Tensor& mean, const at::Tensor& var, double count) {
  num_batches_tracked.add_(1);
  const double rate = options.momentum.value_or(
      1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>()));
  running_mean.mul_(1 - rate).add_(mean.to(running_mean.scalar_type()), rate);
  running_var.mul_(1 - rate).add_((var * (count / (count - 1))).to(running_var.scalar_type()),
                                  rate);
}

at::Tensor BatchNormImpl::evaluated(const at::Tensor& input) const {
  const at::ScalarType type = computed_type(input.scalar_type());
  return at::batch_norm(input.to(type), as_type(weight, type), as_type(bias, type),
                        running_mean.to(type), running_var.to(type), /*training=*/false, 0.0,
                        options.eps, /*cudnn_enabled=*/false)
      .to(input.scalar_type());
}

void BatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::BatchNorm(" << options.channels << ", eps=" << options.eps << ", momentum=";
  options.momentum ? stream << *options.momentum : stream << "none";
  stream << ", affine=" << (options.affine ? "true" : "false");
  if (options.axis_name) stream << ", axis_name=" << options.axis_name->text();
  stream << ")";
}

void BatchNormImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

void BatchNormImpl::to(torch::Dtype dtype, bool non_blocking) {
  const at::Tensor mean = running_mean.detach();
  const at::Tensor var = running_var.detach();
  Module::to(dtype, non_blocking);
  if (dtype != at::kHalf && dtype != at::kBFloat16) return;
  running_mean.set_data(mean);
  running_var.set_data(var);
}

bool BatchNormImpl::keeps_equal_over(const AxisNames& axis_name) const {
  if (options.axis_name) return options.axis_name->names() == axis_name.names();
  const auto position = followed();
  return position && position->axis_name.names() == axis_name.names();
}

}  // namespace lockstep
