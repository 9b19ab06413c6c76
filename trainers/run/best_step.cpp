#include "trainers/run/best_step.h"

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <ATen/ops/full.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/first_failure.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/training/bucket_sizes.h"
#include "trainers/config/config_options.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

// What a checkpoint says of the validation set; `otherwise` if it can't be read.
Figures validation_in(const fs::path& checkpoint, Figures otherwise) {
  try {
    Figures figures;
    for (const auto& [name, value] : checkpoint_info(checkpoint).figures) {
      if (!name.starts_with(kValidationFigures)) continue;
      figures[name.substr(kValidationFigures.size())] = value;
    }
    return figures.empty() ? otherwise : figures;
  } catch (const Error&) {
    return otherwise;  // model_of_best() says why
  }
}

std::shared_ptr<Model> model_in(const Config& config, const SampleType& sample,
                                const fs::path& checkpoint) {
  require<DataError>(!checkpoint.empty(), "its checkpoint is no longer there");
  // All replicas of a host make one at a time.
  const std::int64_t here = ceil_div(config.launch.replicas, config.launch.hosts.count);
  const std::int64_t bytes = here * training::total_bytes(make_model(config, sample)->parameters());
  const std::string lack = lack_of_memory(static_cast<std::size_t>(bytes));
  require(lack.empty(), "its weights take ", lack);
  return model_of_checkpoint(config, sample, checkpoint);
}

}  // namespace

std::optional<BestStep> best_step_of(const Config& config, const fs::path& output,
                                     const ResumePoint* point, const RunCheckpoints& checkpoints,
                                     const Evaluations& evaluations) {
  const std::string& metric = config.checkpoint.best;
  if (metric == "none" && !config.trainer.patience) return std::nullopt;
  if (!checkpoints.best()) return evaluations.best();
  BestStep best{.step = checkpoints.best_step(), .validation = {{metric, *checkpoints.best()}}};
  std::vector<fs::path> folders{checkpoints_of(output)};
  if (point != nullptr) folders.push_back(fs::absolute(point->checkpoint).parent_path());
  for (const fs::path& folder : folders) {
    const fs::path checkpoint = storage::CheckpointFolder(folder).of_step(best.step);
    std::error_code missing;
    if (!fs::exists(checkpoint, missing)) continue;
    best.validation = validation_in(checkpoint, best.validation);
    best.checkpoint =
        folder == folders.front() ? checkpoint.lexically_relative(output) : checkpoint;
    break;
  }
  return best;
}

std::shared_ptr<Model> model_of_best(const Config& config, const DataSets& data,
                                     const fs::path& checkpoint) {
  const AxisNames axis = config.launch.axis_name;
  std::shared_ptr<Model> model;
  std::string problem;
  try {
    model = model_in(config, data.train->type(), checkpoint);
  } catch (const std::exception& error) {
    problem = maps::text_of(error);
  }
  const std::int64_t own = axis_index(axis);
  const std::int64_t failing = problem.empty() ? axis_size(axis) : own;
  const auto first = pmin(at::full({}, failing, at::kLong), axis).item<std::int64_t>();
  if (first == axis_size(axis)) return model;
  if (first == own) {
    log_warning(str("the best step's figures of the ", kTestSet, " set are left out: ", problem));
  }
  return nullptr;
}

}  // namespace lockstep
