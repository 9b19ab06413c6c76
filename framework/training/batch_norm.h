#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "framework/axes/axis_names.h"
#include "framework/training/trained_module.h"

namespace lockstep {

struct BatchNormOptions {
  std::int64_t channels;
  double eps = 1e-5;                     ///< added to the variance
  std::optional<double> momentum = 0.1;  ///< of the running statistics; none: their plain mean
  bool affine = true;                    ///< with a weight and a bias for each channel
  std::optional<AxisNames> axis_name{};  ///< none: the axis of the trainer of this module
};

/// Batch normalization over the samples of all replicas of an axis: one large batch, however it is
/// cut. As torch::nn::BatchNorm1d, 2d and 3d, and torch.nn.SyncBatchNorm. Ioffe and Szegedy,
/// arXiv:1502.03167.
///
///   lockstep::BatchNorm norm(64);  // a submodule of what a trainer has
///
/// - **Input**: (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), floating; N may differ between
///   replicas, and be 0. The output has its dtype and keeps channels_last. Half types are computed
///   in float32.
/// - **Training mode**: all replicas of the axis call it together. Each sends one small message in
///   the forward, and one in the backward if the input requires a gradient. Mean and variance count
///   each sample once (but for UncountedSamples), are the same bits on all replicas, and so are the
///   running statistics. The gradient is that of the sum of all replicas' results; those of weight
///   and bias are the replica's own part, which trainers average. There is no second derivative.
/// - **Evaluation mode** uses the running statistics, anywhere.
/// - **Names** are LibTorch's: weight, bias, running_mean, running_var (unbiased),
///   num_batches_tracked. to() leaves the running statistics in float32 for half types, in which
///   they would stand still.
///
/// Throws ValueError for other inputs, and in training mode if all replicas together have one value
/// for each channel. Without axis_name, Error as TrainedModule::trainer_position(); otherwise
/// NameError for an axis that is not bound.
class BatchNormImpl : public torch::nn::Cloneable<BatchNormImpl>, public TrainedModule {
 public:
  explicit BatchNormImpl(std::int64_t channels)
      : BatchNormImpl(BatchNormOptions{.channels = channels}) {}
  /// Throws ValueError for channels or eps that are not positive, and a momentum outside of [0, 1].
  explicit BatchNormImpl(const BatchNormOptions& options);

  at::Tensor forward(const at::Tensor& input);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  using Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

  /// Whether this module's forwards keep its buffers equal on all replicas of `axis_name`.
  [[nodiscard]] bool keeps_equal_over(const AxisNames& axis_name) const;

  BatchNormOptions options;
  at::Tensor weight, bias;  ///< (C); undefined unless affine
  at::Tensor running_mean, running_var;
  at::Tensor num_batches_tracked;  ///< int64
};
TORCH_MODULE(BatchNorm);

}  // namespace lockstep
