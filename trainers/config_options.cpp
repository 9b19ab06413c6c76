#include "trainers/config_options.h"

#include <string>

#include <torch/nn/module.h>

namespace lockstep {

ZeroOptions zero_options(const Config& config, const Model& model) {
  ZeroOptions options = config.zero;
  options.axis_name = config.launch.axis_name;
  options.initialize = [&model](const std::string& name) { return model.initial_value(name); };
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
  auto model =
      make_model(config.model, data.train->features(), data.train->outputs(), config.zero.seed);
  if (config.trainer.precision == Precision::bf16) model->to(at::kBFloat16);
  return model;
}

std::int64_t total_steps(const Config& config, const Sampler& sampler) {
  if (config.trainer.steps) return *config.trainer.steps;
  return sampler.steps_between(0, sampler.start_of_epoch(*config.trainer.epochs));
}

}  // namespace lockstep
