#include "framework/training/batch_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "framework/axes/environment.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/in_place.h"
#include "framework/training/run_record.h"
#include "framework/training/uncounted_samples.h"

namespace lockstep {
namespace {

using torch::autograd::variable_list;

// `tensor` as LibTorch's kernels are fast on it.
at::Tensor dense(const at::Tensor& tensor, at::ScalarType type, at::MemoryFormat format) {
  return tensor.to(type).contiguous(format);
}

// Writes all values of a tensor.
void copy_values(const at::Tensor& from, double* into) {
  const at::Tensor doubles = from.to(at::kDouble);
  std::copy_n(doubles.data_ptr<double>(), doubles.numel(), into);
}

// (x - mean) / sqrt(var + eps) * weight + bias, for each channel, in the type of x.
at::Tensor normalized(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& mean, const at::Tensor& var, double eps) {
  const auto as_x = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(x.scalar_type()) : tensor;
  };
  return at::batch_norm(x, as_x(weight), as_x(bias), as_x(mean), as_x(var), /*training=*/false, 0.0,
                        eps, /*cudnn_enabled=*/false);
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
    auto* const values = own.data_ptr<double>();
    copy_values(mean, values);
    copy_values(var, values + channels);
    values[2 * channels] = static_cast<double>(count);
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

// out = a x + b y + c for `count` values of one channel, or of neighbouring channels.
template <typename T>
void add_row(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ y,
             const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
             bool of_one_channel, std::int64_t count) {
  if (of_one_channel) {
    const T of_x = *a;
    const T of_y = *b;
    const T of_one = *c;
    for (std::int64_t i = 0; i < count; ++i) out[i] = of_x * x[i] + of_y * y[i] + of_one;
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] * x[i] + b[i] * y[i] + c[i];
  }
}

// a x + b y + c in one pass, by the replica's math threads. `x` and `y` are dense in the same
// format; `factors` (3, channels) are a, b and c.
template <typename T>
at::Tensor added_by_channel(const at::Tensor& x, const at::Tensor& y, const at::Tensor& factors) {
  const at::Tensor out = at::empty_like(x);
  std::vector<std::int64_t> for_each_channel(static_cast<std::size_t>(x.dim()), 1);
  for_each_channel[1] = x.size(1);
  at::TensorIteratorConfig config;
  config.add_output(out).add_input(x).add_input(y);
  for (std::int64_t i = 0; i < 3; ++i) config.add_owned_input(factors[i].view(for_each_channel));
  config.build().for_each(
      [](char** data, const std::int64_t* strides, std::int64_t count, std::int64_t rows) {
        constexpr std::size_t kTensors = 6;
        std::array<char*, kTensors> row{};
        std::copy_n(data, kTensors, row.begin());
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto at = [&](std::size_t tensor) { return reinterpret_cast<T*>(row[tensor]); };
          add_row<T>(at(0), at(1), at(2), at(3), at(4), at(5), strides[3] == 0, count);
          for (std::size_t tensor = 0; tensor < kTensors; ++tensor)
            row[tensor] += strides[kTensors + tensor];
        }
      });
  return out;
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
        axis_(std::move(axis)) {}

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
    lockstep::require<NameError>(identity && identity == current_identity(), call,
                                 " runs outside the replica that its forward ran in");
    const CalledFrom scope(call);
    const at::Tensor input = input_.unpack();
    const at::Tensor weight = weight_.unpack();
    const at::ScalarType type = mean_.scalar_type();
    const at::MemoryFormat format = input.suggest_memory_format();
    const at::Tensor x = dense(input, type, format);

    // With y = weight (x - mean) / std + bias: the sums of dL/dy (x - mean) / std and of dL/dy.
    const std::int64_t channels = x.size(1);
    at::Tensor dy;
    at::Tensor scaled = at::zeros({channels}, type);
    at::Tensor plain = scaled;
    if (counts_ && gradients[0].defined()) {
      dy = dense(gradients[0], type, format);
      std::tie(std::ignore, scaled, plain) = at::native_batch_norm_backward(
          dy, x, {}, mean_, var_, {}, {}, /*train=*/false, eps_, {false, true, true});
    }
    variable_list results(3);
    if (weight.defined()) {
      results[1] = scaled.to(weight.scalar_type());
      results[2] = plain.to(weight.scalar_type());
    }
    if (!needs_input_) return results;

    const at::Tensor sums = at::empty({2 * channels}, at::kDouble);
    copy_values(scaled, sums.data_ptr<double>());
    copy_values(plain, sums.data_ptr<double>() + channels);
    psum_(sums, axis_);
    if (!counts_) {
      results[0] = at::zeros_like(input);
      return results;
    }
    if (!dy.defined()) dy = at::zeros_like(x);
    results[0] = (type == at::kDouble ? input_gradient<double>(x, dy, weight, sums)
                                      : input_gradient<float>(x, dy, weight, sums))
                     .to(input.scalar_type());
    return results;
  }

 private:
  // dL/dx = weight / std (dL/dy - mean(dL/dy) - (x - mean) / std mean(dL/dy (x - mean) / std)),
  // with means over all replicas: for each channel a sum of x, dL/dy and 1 with a factor each.
  template <typename T>
  [[nodiscard]] at::Tensor input_gradient(const at::Tensor& x, const at::Tensor& dy,
                                          const at::Tensor& weight, const at::Tensor& sums) const {
    const auto channels = static_cast<std::size_t>(x.size(1));
    std::vector<double> means(channels);
    std::vector<double> vars(channels);
    std::vector<double> weights(channels, 1);
    copy_values(mean_, means.data());
    copy_values(var_, vars.data());
    if (weight.defined()) copy_values(weight, weights.data());
    const auto* const sum = sums.data_ptr<double>();
    const at::Tensor factors = at::empty({3, x.size(1)}, x.scalar_type());
    auto* const of_x = factors.data_ptr<T>();
    auto* const of_dy = of_x + channels;
    auto* const of_one = of_dy + channels;
    for (std::size_t c = 0; c < channels; ++c) {
      const double inverse = 1 / std::sqrt(vars[c] + eps_);
      const double scale = weights[c] * inverse;
      const double slope = inverse * sum[c] / count_;
      of_x[c] = static_cast<T>(-scale * slope);
      of_dy[c] = static_cast<T>(scale);
      of_one[c] = static_cast<T>(scale * (means[c] * slope - sum[channels + c] / count_));
    }
    return added_by_channel<T>(x, dy, factors);
  }

  torch::autograd::SavedVariable input_;
  torch::autograd::SavedVariable weight_;
  at::Tensor mean_;
  at::Tensor var_;
  double count_;
  double eps_;
  bool counts_;  // whether this replica's samples do
  bool needs_input_;
  AxisNames axis_;
  std::weak_ptr<const int> identity_ = current_identity();
};

void update_running(const BatchNormImpl& norm, const Statistics& batch) {
  norm.num_batches_tracked.add_(1);
  const double rate = norm.options.momentum.value_or(
      1.0 / static_cast<double>(norm.num_batches_tracked.item<std::int64_t>()));
  const at::Tensor unbiased = batch.var * (batch.count / (batch.count - 1));
  norm.running_mean.mul_(1 - rate).add_(batch.mean.to(norm.running_mean.scalar_type()), rate);
  norm.running_var.mul_(1 - rate).add_(unbiased.to(norm.running_var.scalar_type()), rate);
}

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
  // In which it is computed.
  const at::ScalarType type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (!is_training()) {
    return normalized(input.to(type), weight, bias, running_mean, running_var, options.eps)
        .to(input.scalar_type());
  }
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
    const at::Tensor x = dense(input, type, input.suggest_memory_format());
    statistics = statistics_of_all(x, axis);
    call.require(statistics.count != 1,
                 "all replicas together have one value for each channel; in training mode there "
                 "must be more. If that is what is left at an epoch's end, leave it out (train: "
                 "data.drop_last: true)");
    mean = statistics.mean.to(type);
    var = statistics.var.to(type);
    output = normalized(x, weight, bias, mean, var, options.eps).to(input.scalar_type());
    if (statistics.count > 0 && !training::RecordedRun::is_repeated()) {
      update_running(*this, statistics);
    }
  }
  if (!requires_grad) return output;
  const auto node = collectives::make_node<BatchNormBackward>(input, weight, mean, var,
                                                              statistics.count, options.eps, axis);
  node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
  torch::autograd::set_history(output, node);
  return output;
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
