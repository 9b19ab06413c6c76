#pragma once

#include "framework/data/data.h"
#include "trainers/config/config.h"
#include "trainers/run/resume.h"

namespace lockstep {

/// Throws ValueError (YamlProblems) with all errors that a config alone does not show: more
/// microbatches than the training set has samples, a drop_last that leaves no step, a warm-up
/// longer than the run, a step of one sample that batch normalization can't train on, data of only
/// one class, parameter groups that hold for none of the model's parameters, a pattern of
/// trainer.freeze that matches none, and patterns that leave none to train. `point` is where the
/// run goes on, if it does. Allocates nothing of the model. The launcher calls it before replicas
/// start.
void check_job(const Config& config, const DataSets& data, const ResumePoint* point = nullptr);

/// The same for `model.init_from`: names, shapes and dtypes that do not fit the model, and a file
/// that can't be used. Where the config allows missing and unexpected names, these are logged. For
/// runs that begin: one that goes on from a checkpoint needs no such file.
void check_initial_weights(const Config& config, const DataSets& data);

}  // namespace lockstep
