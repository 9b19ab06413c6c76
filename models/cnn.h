#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/random.h"
#include "models/mlp.h"
#include "models/model.h"

namespace lockstep {

struct CnnOptions {
  std::vector<std::int64_t> channels{32, 64};  ///< out of each convolution
  std::vector<std::int64_t> dense{128};        ///< widths of the hidden layers after them
};

/// A convolutional network on images (samples, channel, row, column): for each of `channels` a 3x3
/// convolution with that many outputs (padding 1), 2x2 max pooling and ReLU; then fully connected
/// layers `dense` … → outputs with ReLU between them. The convolutions' parameters are
/// "conv.i.weight" (out, in, 3, 3) and "conv.i.bias" (out), the layers' "dense.i.weight" and
/// "dense.i.bias", which see features as (channel, row, column). They start as torch::nn::Conv2d's
/// and Linear's do, each drawn from `key` folded with its own name.
class Cnn : public Model {
 public:
  /// Throws ValueError for sizes below 1, and for images that become empty before the last pooling.
  Cnn(const CnnOptions& options, std::int64_t image_channels, std::int64_t height,
      std::int64_t width, std::int64_t outputs, const Key& key);

  at::Tensor forward(const at::Tensor& inputs) override;

 private:
  class Convolution;
  std::vector<std::int64_t> image_;  // channels, height, width
  std::vector<std::shared_ptr<Convolution>> convolutions_;
  std::shared_ptr<Mlp> dense_;
};

/// For the registry: floating images (channels, height, width).
[[nodiscard]] ModelKind cnn_kind();

}  // namespace lockstep
