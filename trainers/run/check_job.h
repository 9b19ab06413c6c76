#pragma once

#include "framework/data/data.h"
#include "trainers/config/config.h"
#include "trainers/run/resume.h"

namespace lockstep {

/// Throws ValueError (YamlProblems) with all errors that a config alone does not show: of lengths
/// and batches for these data, classes, losses and metrics, and patterns for the model's
/// parameters. `point` is where the run goes on, if it does. Allocates nothing of the model. The
/// launcher calls it before replicas start.
void check_job(const Config& config, const DataSets& data, const ResumePoint* point = nullptr);

/// The same for `model.init_from`: names, shapes and dtypes that do not fit the model, and a file
/// that can't be used. Where the config allows missing and unexpected names, these are logged. For
/// runs that begin: one that goes on from a checkpoint needs no such file.
void check_initial_weights(const Config& config, const DataSets& data);

}  // namespace lockstep
