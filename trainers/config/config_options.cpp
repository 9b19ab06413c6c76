#include "trainers/config/config_options.h"

#include <algorithm>
#include <string>

#include "framework/base/cores.h"
#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/objectives/objectives.h"
#include "framework/training/bucket_sizes.h"

namespace lockstep {

namespace {

std::shared_ptr<Model> model_of(const Config& config, const SampleType& sample) {
  auto model = make_model(config.model, sample, config.zero.seed);
  for (const auto& item : model->named_parameters()) {
    const bool is_frozen = std::ranges::any_of(config.trainer.freeze, [&](const auto& pattern) {
      return matches_pattern(pattern, item.key());
    });
    if (is_frozen) item.value().set_requires_grad(false);
  }
  return model;
}

}  // namespace

ZeroOptions zero_options(const Config& config, const Model& model, const Weights* weights) {
  ZeroOptions options = config.zero;
  options.axis_name = config.launch.axis_name;
  options.accumulate = microbatches(config);
  options.late_parameters = true;  // all that reads them does so by the trainer
  options.keeps_last_step = config.checkpoint.saves();
  options.initialize = [&model, weights](const std::string& name) {
    const at::Tensor given = weights != nullptr ? weight_of(*weights, model, name) : at::Tensor();
    return given.defined() ? given : model.initial_value(name);
  };
  return options;
}

Config alone(const Config& config, std::int64_t microbatches) {
  Config own = config;
  own.launch = {.replicas = 1,
                .mode = LaunchMode::threads,
                .axis_name = config.launch.axis_name,
                .threads_per_replica = config.launch.threads_per_replica};
  own.zero.stage = 0;
  own.zero.accumulate = microbatches;
  own.trainer.global_batch.reset();
  own.checkpoint.save = CheckpointOptions::Save::none;
  return own;
}

DataContext data_context(const Config& config) {
  return {.replicas = config.launch.replicas,
          .seed = config.zero.seed,
          .ignored = ignored_target(config.loss),
          .validation = config.data_use.validation,
          .search = {.threads = config.data_use.threads.value_or(0) > 0 ? *config.data_use.threads
                                                                        : usable_cores()}};
}

std::int64_t microbatches(const Config& config) {
  if (!config.trainer.global_batch) return config.zero.accumulate;
  const std::int64_t own = *config.trainer.global_batch / config.launch.replicas;
  return ceil_div(own, config.data_use.batch_size);
}

SamplerOptions sampler_options(const Config& config, const DataSets& data) {
  const std::int64_t replicas = config.launch.replicas;
  const std::int64_t batch = config.trainer.global_batch
                                 ? *config.trainer.global_batch / replicas
                                 : config.data_use.batch_size * config.zero.accumulate;
  return {.size = data.train->size(),
          .batch_size = batch,
          .replicas = replicas,
          .seed = config.zero.seed,
          .shuffle = config.data_use.shuffle,
          .drop_last = config.data_use.drop_last};
}

LoaderOptions loader_options(const Config& config, const Dataset& data) {
  return {.threads = config.data_use.threads.value_or(data.is_slow() ? 1 : 0)};
}

std::shared_ptr<Model> make_model(const Config& config, const SampleType& sample) {
  const DeferredValues scope;
  return model_of(config, sample);
}

std::shared_ptr<Model> make_whole_model(const Config& config, const SampleType& sample) {
  const std::int64_t bytes = training::total_bytes(make_model(config, sample)->parameters());
  const auto available = static_cast<std::int64_t>(available_memory());
  require(bytes <= available, "model ", config.model.name, " takes ", text_of_bytes(bytes),
          ", and ", text_of_bytes(available), " of memory are left", memory_limit_text());
  return model_of(config, sample);
}

ParameterValues evaluated_values(const Config& config) {
  return config.zero.ema_decay ? ParameterValues::averaged : ParameterValues::trained;
}

std::int64_t total_steps(const Config& config, const Sampler& sampler) {
  if (config.trainer.steps) return *config.trainer.steps;
  if (config.trainer.samples) return sampler.steps_between(0, *config.trainer.samples);
  return sampler.steps_between(0, sampler.start_of_epoch(*config.trainer.epochs));
}

}  // namespace lockstep
