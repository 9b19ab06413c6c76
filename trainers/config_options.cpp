#include "trainers/config_options.h"

#include <chrono>

#include <torch/nn/module.h>

namespace lockstep {

LaunchOptions launch_options(const Config& config) {
  const ParallelOptions& parallel = config.parallel;
  const auto timeout_ms = static_cast<std::int64_t>(parallel.timeout_s * 1000);
  return {.replicas = parallel.replicas,
          .workers = parallel.workers,
          .mode = parallel.launch,
          .backend = parallel.backend,
          .axis_name = parallel.axis_name,
          .threads_per_replica = parallel.threads_per_replica,
          .timeout = std::chrono::milliseconds(timeout_ms)};
}

ZeroOptions zero_options(const Config& config) {
  const ParallelOptions& parallel = config.parallel;
  const TrainerOptions& trainer = config.trainer;
  return {.axis_name = parallel.axis_name,
          .stage = parallel.zero_stage,
          .bucket_mb = parallel.bucket_mb,
          .overlap = parallel.overlap,
          .accumulate = trainer.accumulate,
          .reduce_every_microbatch = parallel.reduce_every_microbatch,
          .compression = parallel.compression,
          .optimizer = config.optimizer,
          .clip_norm = trainer.clip_norm,
          .clip_value = trainer.clip_value,
          .non_finite = trainer.non_finite,
          .seed = trainer.seed,
          // Nothing is drawn that comes not again.
          .randomness = Randomness::strict};
}

SamplerOptions sampler_options(const Config& config, const DataSets& data, std::int64_t replicas) {
  return {.size = data.train->size(),
          .batch_size = config.batch_size * config.trainer.accumulate,
          .replicas = replicas,
          .seed = config.trainer.seed,
          .shuffle = config.shuffle};
}

std::shared_ptr<Model> make_model(const Config& config, const DataSets& data) {
  auto model =
      make_model(config.model, data.train->features(), data.train->outputs(), config.trainer.seed);
  if (config.trainer.precision == Precision::bf16) model->to(at::kBFloat16);
  return model;
}

std::int64_t total_steps(const Config& config, std::int64_t steps_per_epoch) {
  if (config.trainer.steps) return *config.trainer.steps;
  return *config.trainer.epochs * steps_per_epoch;
}

}  // namespace lockstep
