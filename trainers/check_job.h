#pragma once

#include "framework/data/data.h"
#include "trainers/config.h"

namespace lockstep {

/// Throws ValueError for what a config alone does not show to be wrong: more microbatches than the
/// training set has samples, a warm-up longer than the run, parameter groups that hold for none of
/// the model's parameters. Nothing of the model is allocated. For the launcher, before replicas
/// start.
void check_job(const Config& config, const DataSets& data);

}  // namespace lockstep
