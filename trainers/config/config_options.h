#pragma once

#include <cstdint>
#include <memory>

#include "framework/checkpoint/weights.h"
#include "framework/data/data.h"
#include "framework/data/loader.h"
#include "framework/data/sampler.h"
#include "framework/training/zero_options.h"
#include "models/model.h"
#include "trainers/config/config.h"

namespace lockstep {

/// A config as options for the parts of the framework.

/// config.zero over the axis that launch() binds, for a model of make_model(), which must live
/// until the trainer is made. Parameters start from `weights`, where these have them.
[[nodiscard]] ZeroOptions zero_options(const Config& config, const Model& model,
                                       const Weights* weights = nullptr);

/// The job on one replica in this process, with its math threads: so many microbatches a step, and
/// no checkpoints.
[[nodiscard]] Config alone(const Config& config, std::int64_t microbatches = 1);

/// What the job wants of its data.
[[nodiscard]] DataContext data_context(const Config& config);

/// Backwards a replica and step.
[[nodiscard]] std::int64_t microbatches(const Config& config);

/// For the training set.
[[nodiscard]] SamplerOptions sampler_options(const Config& config, const DataSets& data);
[[nodiscard]] LoaderOptions loader_options(const Config& config, const Dataset& data);

/// The model for these samples. What `trainer.freeze` names requires no gradient. Its parameters
/// are on the meta device, or have their values with make_whole_model(): a ValueError if memory
/// does not suffice for these.
[[nodiscard]] std::shared_ptr<Model> make_model(const Config& config, const SampleType& sample);
[[nodiscard]] std::shared_ptr<Model> make_whole_model(const Config& config,
                                                      const SampleType& sample);

/// The parameters that evaluations take: averages, where the config has some.
[[nodiscard]] ParameterValues evaluated_values(const Config& config);

/// The steps of the run, from its beginning. ValueError if its epochs have more samples than fit in
/// an int64.
[[nodiscard]] std::int64_t total_steps(const Config& config, const Sampler& sampler);

}  // namespace lockstep
