#pragma once

#include <cstdint>

#include "framework/data/data.h"
#include "framework/data/sampler.h"
#include "trainers/config.h"

namespace lockstep {

/// What the config says to the sampler of its training set in a job of `replicas`.
[[nodiscard]] SamplerOptions sampler_options(const Config& config, const DataSets& data,
                                             std::int64_t replicas);

/// The steps of the run, which has `steps_per_epoch`.
[[nodiscard]] std::int64_t total_steps(const Config& config, std::int64_t steps_per_epoch);

}  // namespace lockstep
