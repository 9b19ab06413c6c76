#pragma once

#include "framework/data/data.h"
#include "trainers/config.h"

namespace lockstep {

/// Throws ValueError (YamlProblems) with all errors that a config alone does not show: more
/// microbatches than the training set has samples, a warm-up longer than the run, parameter groups
/// that hold for none of the model's parameters. Allocates nothing of the model. The launcher calls
/// it before replicas start.
void check_job(const Config& config, const DataSets& data);

}  // namespace lockstep
