#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/random.h"
#include "models/mlp.h"
#include "models/model.h"

namespace lockstep {

/// A convolutional network on square images of one channel, whose pixels are the features, row by
/// row: for each of `channels` a 3x3 convolution with that many outputs (padding 1), 2x2 max
/// pooling and ReLU; then fully connected layers `dense` … → outputs with ReLU between them. The
/// convolutions' parameters are "conv.i.weight" (out, in, 3, 3) and "conv.i.bias" (out), the
/// layers' "dense.i.weight" and "dense.i.bias", which see features as (channel, row, column). They
/// start as torch::nn::Conv2d's and Linear's do, each drawn from `key` folded with its own name.
class Cnn : public Model {
 public:
  Cnn(std::int64_t side, const std::vector<std::int64_t>& channels,
      const std::vector<std::int64_t>& dense, std::int64_t outputs, const Key& key);

  at::Tensor forward(const at::Tensor& inputs) override;

 private:
  class Convolution;
  std::int64_t side_;
  std::vector<std::shared_ptr<Convolution>> convolutions_;
  std::shared_ptr<Mlp> dense_;
};

/// For the registry. Throws ValueError for widths below 1, for features that are no square, and for
/// images that become empty before the last pooling.
[[nodiscard]] std::shared_ptr<Model> make_cnn(const ModelOptions& options, std::int64_t features,
                                              std::int64_t outputs, const Key& key);

}  // namespace lockstep
