#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "framework/data/data.h"
#include "framework/telemetry/metrics.h"
#include "models/model.h"
#include "trainers/config/config.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/evaluations.h"
#include "trainers/run/resume.h"
#include "trainers/run/run_checkpoints.h"

namespace lockstep {

/// The best step of a run that ends, and where its weights lie: in the folder `output`, or in that
/// of the run from which it goes on (`point`, or nullptr). None where the validation set decides
/// nothing, or has not decided yet. Of `validation` and `checkpoint` what this replica can read.
[[nodiscard]] std::optional<BestStep> best_step_of(const Config& config,
                                                   const std::filesystem::path& output,
                                                   const ResumePoint* point,
                                                   const RunCheckpoints& checkpoints,
                                                   const Evaluations& evaluations);

/// The model of a checkpoint's weights: the run's stays as it is. All replicas together, also where
/// some see no such checkpoint ("" is none). nullptr, with a warning of the first replica that
/// lacks it or the memory for it, if any does.
[[nodiscard]] std::shared_ptr<Model> model_of_best(const Config& config, const DataSets& data,
                                                   const std::filesystem::path& checkpoint);

}  // namespace lockstep
