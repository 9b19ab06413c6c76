#include "trainers/check_job.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/sampler.h"
#include "framework/optim/optimizer_options.h"
#include "framework/training/module_parameters.h"
#include "models/model.h"
#include "trainers/config_options.h"

namespace lockstep {
namespace {

// Microbatches without a sample cost as much as others: far too many of them look like a hang.
void check_accumulate(const Config& config, const DataSets& data) {
  const std::int64_t accumulate = config.zero.accumulate;
  const std::int64_t replicas = config.launch.replicas;
  const std::int64_t samples = data.train->size();
  if (accumulate == 1 || accumulate * replicas <= samples) return;
  throw ValueError(
      str("trainer.accumulate: times parallel.replicas it must be at most the training "
          "set's samples, of which there are ",
          samples, "; is ", accumulate, " times ", replicas));
}

// Where the key was written, as messages begin; "" in a config that was not read from a file.
std::string place_of(const Config& config, const std::string& key, std::size_t index = 0) {
  const auto found = config.places.find(key);
  return found == config.places.end() || index >= found->second.size()
             ? ""
             : found->second[index] + ": ";
}

// Such a run would end before it has reached its learning rate.
void check_warmup(const Config& config, const DataSets& data) {
  const std::int64_t per_epoch =
      Sampler(sampler_options(config, data, config.launch.replicas)).steps_per_epoch();
  const std::int64_t steps = total_steps(config, per_epoch);
  if (config.schedule.warmup_steps <= steps) return;
  const std::string length = config.trainer.steps
                                 ? "trainer.steps"
                                 : str("trainer.epochs ", *config.trainer.epochs, " of ",
                                       counted(per_epoch, "step"), " each");
  throw ValueError(str(place_of(config, "schedule.warmup_steps"),
                       "schedule.warmup_steps: must be at most the run's ", counted(steps, "step"),
                       " (", length, "), is ", config.schedule.warmup_steps));
}

// One after the other, for the first that is wrong to be known.
void check_parameter_groups(const Config& config, const DataSets& data) {
  if (config.zero.optimizer.groups.empty()) return;
  const ShapesOnly scope;
  const auto model = make_model(config, data);
  const std::vector<std::string> names = training::module_parameters(*model).names;
  OptimizerOptions upto;
  for (std::size_t i = 0; i < config.zero.optimizer.groups.size(); ++i) {
    upto.groups.push_back(config.zero.optimizer.groups[i]);
    try {
      check_groups(upto, names);
    } catch (const ValueError& error) {
      error.rethrow_with(place_of(config, "optimizer.groups.pattern", i));
    }
  }
}

}  // namespace

void check_job(const Config& config, const DataSets& data) {
  check_accumulate(config, data);
  check_warmup(config, data);
  check_parameter_groups(config, data);
}

}  // namespace lockstep
