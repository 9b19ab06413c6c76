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
#include "trainers/yaml_problems.h"

namespace lockstep {
namespace {

// The place where the key was written; none in a config that was not read from a file.
keys::YamlPosition written_at(const Config& config, const std::string& key, std::size_t index = 0) {
  const auto found = config.places.find(key);
  const bool is_known = found != config.places.end() && index < found->second.size();
  return is_known ? found->second[index] : keys::YamlPosition();
}

// Microbatches without a sample cost as much as others: far too many of them look like a hang.
void check_accumulate(const Config& config, const DataSets& data, keys::YamlProblems& problems) {
  const std::int64_t accumulate = config.zero.accumulate;
  const std::int64_t replicas = config.launch.replicas;
  const std::int64_t samples = data.train->size();
  if (accumulate == 1 || accumulate * replicas <= samples) return;
  problems.report(written_at(config, "trainer.accumulate"), [&] {
    return str(
        "trainer.accumulate: times parallel.replicas it must be at most the training set's "
        "samples, of which there are ",
        samples, "; is ", accumulate, " times ", replicas);
  });
}

// Such a run would end before it has reached its learning rate.
void check_warmup(const Config& config, const DataSets& data, keys::YamlProblems& problems) {
  const Sampler sampler(sampler_options(config, data, config.launch.replicas));
  const std::int64_t steps = total_steps(config, sampler);
  if (config.schedule.warmup_steps <= steps) return;
  problems.report(written_at(config, "schedule.warmup_steps"), [&] {
    const std::string length = config.trainer.steps
                                   ? "trainer.steps"
                                   : str("trainer.epochs ", *config.trainer.epochs, " of ",
                                         counted(sampler.steps_per_epoch(), "step"), " each");
    return str("schedule.warmup_steps: must be at most the run's ", counted(steps, "step"), " (",
               length, "), is ", config.schedule.warmup_steps);
  });
}

// Checks the groups one after the other, to report each that is wrong. Such a group holds for no
// parameter, so the others mean the same without it.
void check_parameter_groups(const Config& config, const DataSets& data,
                            keys::YamlProblems& problems) {
  if (config.zero.optimizer.groups.empty()) return;
  const auto model = make_model(config, data);
  const std::vector<std::string> names = training::module_parameters(*model).names;
  OptimizerOptions right;
  for (std::size_t i = 0; i < config.zero.optimizer.groups.size(); ++i) {
    right.groups.push_back(config.zero.optimizer.groups[i]);
    try {
      check_groups(right, names);
    } catch (const ValueError& error) {
      problems.report(written_at(config, "optimizer.groups.pattern", i),
                      [&] { return std::string(error.what()); });
      right.groups.pop_back();
    }
  }
}

}  // namespace

void check_job(const Config& config, const DataSets& data) {
  keys::YamlProblems problems;
  check_accumulate(config, data, problems);
  check_warmup(config, data, problems);
  check_parameter_groups(config, data, problems);
  problems.finish();
}

}  // namespace lockstep
