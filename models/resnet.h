#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/random.h"
#include "framework/training/batch_norm.h"
#include "models/model.h"

namespace lockstep {

class Block;
class Convolution;

struct ResnetOptions {
  std::int64_t depth = 20;  ///< layers with weights: 6n + 2, with n residual blocks a stage
  std::int64_t width = 16;  ///< channels of the first of three stages; each next has twice as many
  double stochastic_depth = 0;  ///< the probability that the last block's branch is dropped
  bool recompute = false;       ///< blocks run again in the backward; activations are not kept

  bool operator==(const ResnetOptions&) const = default;
};

/// The residual network for small images (He et al., Deep Residual Learning for Image Recognition,
/// 2015, section 4.2): a 3x3 convolution, three stages of residual blocks of two 3x3 convolutions
/// each, of which the second and third stage begin with stride 2, the mean over all pixels, and a
/// linear layer. Each convolution is followed by a BatchNorm over all replicas. Where a block
/// changes the shape, its shortcut is a 1x1 convolution. Branches are dropped with a probability
/// that grows linearly with their depth (Huang et al., Deep Networks with Stochastic Depth, 2016).
///
/// Names are torchvision's: conv1, bn1, layer1.0.conv1, …, layer2.0.downsample.0, fc. Convolutions
/// start as N(0, 2 / (out·rows·columns)) (He et al., Delving Deep into Rectifiers, 2015, by
/// fan-out), BatchNorms at 1 and 0, fc's weight as torch::nn::Linear's and its bias at 0; each is
/// drawn from `key` folded with its full name. Each residual block is a Block.
class Resnet : public Model {
 public:
  /// Throws ValueError for sizes below 1, another depth, and a probability outside of [0, 1].
  Resnet(const ResnetOptions& options, std::int64_t channels, std::int64_t height,
         std::int64_t width, std::int64_t classes, const Key& key);

  /// Images (samples, channels, height, width) to scores (samples, classes). Throws ValueError for
  /// other shapes, and as BatchNorm.
  at::Tensor forward(const at::Tensor& images) override;

 private:
  std::vector<std::int64_t> image_;  // channels, height, width
  bool recompute_;
  std::shared_ptr<Convolution> first_;
  BatchNorm first_norm_;
  std::vector<std::shared_ptr<Block>> blocks_;
  at::Tensor last_weight_;
  at::Tensor last_bias_;
};

/// For the registry: floating images (channels, height, width) of classes.
[[nodiscard]] ModelKind resnet_kind();

}  // namespace lockstep
