#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "framework/base/random.h"
#include "framework/data/dataset.h"
#include "framework/keys/key.h"

namespace lockstep {

// Under DeferredValues (model.h) parameters are made without values, and get them later.

/// A float32 tensor of `sizes` with values uniform in [-bound, bound), a pure function of its
/// arguments: the same bits in any thread, whatever else has been drawn.
[[nodiscard]] at::Tensor uniform(const std::vector<std::int64_t>& sizes, double bound,
                                 const Key& key);

/// The same with values of the normal distribution.
[[nodiscard]] at::Tensor normal(const std::vector<std::int64_t>& sizes, double mean,
                                double deviation, const Key& key);

/// A float32 tensor of `sizes` with one value.
[[nodiscard]] at::Tensor constant(const std::vector<std::int64_t>& sizes, double value);

/// A module's path in the model, and the model's key: a parameter is drawn from that key folded
/// with the parameter's full name.
class KeyPath {
 public:
  explicit KeyPath(const Key& key) : key_(key) {}

  [[nodiscard]] KeyPath operator/(const std::string& part) const {
    KeyPath inner(key_);
    inner.path_ = path_ + part + ".";
    return inner;
  }
  [[nodiscard]] Key key_of(const std::string& parameter) const {
    return key_.fold(path_ + parameter);
  }
  /// A new module called `name` in `module`, made of `args` and its own path.
  template <typename Module, typename... Args>
  std::shared_ptr<Module> add(torch::nn::Module& module, const std::string& name,
                              const Args&... args) const {
    return module.register_module(name, std::make_shared<Module>(args..., *this / name));
  }

 private:
  Key key_;
  std::string path_;
};

/// A module that only holds others.
class Container : public torch::nn::Module {};

/// 3x3 convolution with padding 1 of images (samples, in, rows, columns), with a weight (out, in,
/// 3, 3) and a bias (out) or none. The result is channels_last.
[[nodiscard]] at::Tensor convolution(const at::Tensor& images, const at::Tensor& weight,
                                     const at::Tensor& bias = {}, std::int64_t stride = 1);

/// The rule of keys for widths and channels.
inline const keys::Rule<std::int64_t> kWidth = keys::kMillion;

/// `inputs` (samples, …) as (samples, features). ValueError that names `model` if they have another
/// number of values or are not floating.
[[nodiscard]] at::Tensor flat_inputs(std::string_view model, const at::Tensor& inputs,
                                     std::int64_t features);

/// How many values an input has. ValueError that names `model` unless they are floating.
[[nodiscard]] std::int64_t features_of(std::string_view model, const SampleType& sample);

/// The (channels, height, width) of the images that an input is. ValueError that names `model` for
/// other inputs.
[[nodiscard]] std::vector<std::int64_t> image_of(std::string_view model, const SampleType& sample);

}  // namespace lockstep
