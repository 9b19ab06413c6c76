#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "framework/base/non_copyable.h"
#include "framework/base/random.h"
#include "framework/data/dataset.h"
#include "framework/keys/choice.h"

namespace lockstep {

/// A network: a torch::nn::Module with a forward of its own, for data of one SampleType. It knows
/// whether it trains (is_training()). What it draws at random comes from keys, in the replica's own
/// thread also by LibTorch's operators (KeyedModule and keyed_draws.h in framework/training).
class Model : public torch::nn::Module {
 public:
  /// `inputs` (samples, …) as the SampleType has them. The result is (samples, outputs), or for a
  /// target at each position (samples, positions, outputs): scores of classes, or values.
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  /// The first values of parameter `name`, float32, with the bits that make_model gives it. For a
  /// model that make_model made under DeferredValues: this makes it piece by piece, for
  /// ZeroOptions::initialize. ValueError for another model, and for a name that it does not have.
  [[nodiscard]] at::Tensor initial_value(const std::string& name) const;

 private:
  friend class DeferredValues;
  std::map<std::string, std::function<at::Tensor()>> initial_values_;
};

/// A model that a config can name, with its options' keys.
struct ModelKind : keys::Choice {
  std::function<std::shared_ptr<Model>(const keys::Picked& picked, const SampleType& sample,
                                       const Key& key)>
      make;
};

/// A ModelKind from two functions of its options. `make` draws parameters from `key` alone, and
/// throws ValueError for samples that the model is not made for.
///
///   struct NetOptions { std::int64_t width = 64; };
///   register_model(model_kind<NetOptions>("net", "a small network",
///       [](NetOptions& o) -> keys::ConfigKeys {
///         return {{"width", number(o.width, …), "its width"}};
///       },
///       [](const NetOptions& o, const SampleType& sample, const Key& key)
///           -> std::shared_ptr<Model> { return std::make_shared<Net>(o, sample, key); }));
template <typename Options>
[[nodiscard]] ModelKind model_kind(std::string name, std::string help,
                                   keys::ConfigKeys (*keys)(Options& options),
                                   std::shared_ptr<Model> (*make)(const Options& options,
                                                                  const SampleType& sample,
                                                                  const Key& key)) {
  return {keys::choice<Options>(std::move(name), std::move(help), keys),
          [make](const keys::Picked& picked, const SampleType& sample, const Key& key) {
            return make(picked.options<Options>(), sample, key);
          }};
}

/// A ModelKind without options.
[[nodiscard]] ModelKind model_kind(
    std::string name, std::string help,
    std::function<std::shared_ptr<Model>(const SampleType& sample, const Key& key)> make);

/// Lets configs name a model. Before they are read, for one thread: first thing in main().
/// ValueError for a name that is there already.
void register_model(ModelKind kind);

/// All models that are known.
[[nodiscard]] const keys::Registry<ModelKind>& model_registry();

/// The model that is `picked`, its parameters float32. They depend on the options, `sample` and
/// `seed` alone; any threads may make models at once. Throws ValueError for an unknown name, for
/// sizes below 1 and as the model does.
[[nodiscard]] std::shared_ptr<Model> make_model(const keys::Picked& picked,
                                                const SampleType& sample, std::uint64_t seed);

/// While this lives, models that this thread makes have parameters on the meta device, without
/// values or memory: for looking at their shapes, and for a ZeroTrainer that makes the values
/// (Model::initial_value()).
class DeferredValues : private NonCopyable {
 public:
  DeferredValues();
  ~DeferredValues();

  /// The innermost that lives in this thread; nullptr: none.
  [[nodiscard]] static DeferredValues* current() noexcept;
  /// A parameter whose values `make` makes.
  [[nodiscard]] at::Tensor deferred(const std::vector<std::int64_t>& sizes,
                                    std::function<at::Tensor()> make);
  /// Gives a new model what makes its parameters' values.
  void hand_over(Model& model);

 private:
  struct Made {
    at::Tensor parameter;  // lives, so that its address is its own
    std::function<at::Tensor()> make;
  };
  std::unordered_map<const void*, Made> made_;  // of the model that is being made, by TensorImpl
  DeferredValues* outer_;
};

/// The module's parameters by name, sharing their memory.
[[nodiscard]] std::map<std::string, at::Tensor> parameter_map(const torch::nn::Module& module);
/// The module's buffers by name, sharing their memory.
[[nodiscard]] std::map<std::string, at::Tensor> buffer_map(const torch::nn::Module& module);

}  // namespace lockstep
