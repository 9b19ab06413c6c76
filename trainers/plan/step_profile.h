#pragma once

#include <cstdint>
#include <vector>

#include "framework/data/data.h"
#include "trainers/config/config.h"

namespace lockstep::plan {

/// What a replica's steps take on this host, in seconds: medians.
struct StepProfile {
  std::int64_t replicas = 1;  ///< that have run beside each other, in memory that they share
  std::int64_t threads = 1;   ///< math threads of each
  std::int64_t samples = 0;   ///< of a microbatch
  std::int64_t steps = 0;     ///< that were measured
  double data = 0;            ///< a microbatch is made
  double forward = 0;
  double backward = 0;  ///< until the last gradient is there
  double rest = 0;      ///< from then on: with several replicas, what they reduce in memory
  double update = 0;    ///< of all parameters by one replica
  double first = 0;     ///< the first step, the model's making included
  /// The part of their time in which this process' threads wanted a core and had none.
  double waited = 0;
  std::vector<double> ready{};   ///< by parameter that is trained: its gradient, since the backward
                                 ///< began; 0 where it has none
  std::int64_t activations = 0;  ///< bytes, of a microbatch
};

/// Trains a few steps of one microbatch of the config's model at stage 0 on so many `replicas` of
/// this host at once, which are threads, with learning rate 0; for about half a second. Throws what
/// they throw. Not inside of a replica.
[[nodiscard]] StepProfile measure_steps(const Config& config, const DataSets& data,
                                        std::int64_t replicas);

}  // namespace lockstep::plan
