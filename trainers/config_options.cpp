#include "trainers/config_options.h"

#include <algorithm>
#include <string>

#include <torch/nn/module.h>

#include "framework/checkpoint/weights.h"
#include "framework/optim/optimizer_options.h"

namespace lockstep {

ZeroOptions zero_options(const Config& config, const Model& model, const Weights* weights) {
  ZeroOptions options = config.zero;
  options.axis_name = config.launch.axis_name;
  options.late_parameters = true;  // all that reads them does so by the trainer
  options.initialize = [&model, weights](const std::string& name) {
    const at::Tensor given = weights != nullptr ? weight_of(*weights, model, name) : at::Tensor();
    return given.defined() ? given : model.initial_value(name);
  };
  return options;
}

SamplerOptions sampler_options(const Config& config, const DataSets& data, std::int64_t replicas) {
  return {.size = data.train->size(),
          .batch_size = config.batch_size * config.zero.accumulate,
          .replicas = replicas,
          .seed = config.zero.seed,
          .shuffle = config.shuffle};
}

std::shared_ptr<Model> make_model(const Config& config, const DataSets& data) {
  const DeferredValues scope;
  return make_whole_model(config, data);
}

std::shared_ptr<Model> make_whole_model(const Config& config, const DataSets& data) {
  auto model =
      make_model(config.model, data.train->features(), data.train->outputs(), config.zero.seed);
  if (config.trainer.precision == Precision::bf16) model->to(at::kBFloat16);
  for (const auto& item : model->named_parameters()) {
    const bool is_frozen = std::ranges::any_of(config.trainer.freeze, [&](const auto& pattern) {
      return matches_pattern(pattern, item.key());
    });
    if (is_frozen) item.value().set_requires_grad(false);
  }
  return model;
}

std::int64_t total_steps(const Config& config, const Sampler& sampler) {
  if (config.trainer.steps) return *config.trainer.steps;
  return sampler.steps_between(0, sampler.start_of_epoch(*config.trainer.epochs));
}

}  // namespace lockstep
