#include "trainers/job_length.h"

namespace lockstep {

SamplerOptions sampler_options(const Config& config, const DataSets& data, std::int64_t replicas) {
  return {.size = data.train->size(),
          .batch_size = config.batch_size * config.trainer.accumulate,
          .replicas = replicas,
          .seed = config.trainer.seed,
          .shuffle = config.shuffle};
}

std::int64_t total_steps(const Config& config, std::int64_t steps_per_epoch) {
  if (config.trainer.steps) return *config.trainer.steps;
  return *config.trainer.epochs * steps_per_epoch;
}

}  // namespace lockstep
