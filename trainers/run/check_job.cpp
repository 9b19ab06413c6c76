#include "trainers/run/check_job.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/weights.h"
#include "framework/data/sampler.h"
#include "framework/keys/yaml_problems.h"
#include "framework/objectives/objectives.h"
#include "framework/optim/optimizer_options.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/pmap.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/training/module_parameters.h"
#include "framework/training/zero.h"
#include "models/model.h"
#include "trainers/config/config_options.h"
#include "trainers/run/course.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/memory_report.h"

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
  const std::int64_t replicas = config.launch.replicas;
  const std::int64_t accumulate = microbatches(config, replicas);
  const std::int64_t samples = data.train->size();
  if (accumulate == 1 || accumulate * replicas <= samples) return;
  if (config.trainer.global_batch) {
    return problems.report(written_at(config, "trainer.global_batch"), [&] {
      return str(
          "trainer.global_batch: must be at most the training set's samples, of which there "
          "are ",
          samples, "; is ", *config.trainer.global_batch);
    });
  }
  problems.report(written_at(config, "trainer.accumulate"), [&] {
    return str(
        "trainer.accumulate: times parallel.replicas it must be at most the training set's "
        "samples, of which there are ",
        samples, "; is ", accumulate, " times ", replicas);
  });
}

// Returns whether an epoch has a step.
bool check_drop_last(const Config& config, const DataSets& data, keys::YamlProblems& problems) {
  const SamplerOptions sampler = sampler_options(config, data, config.launch.replicas);
  const std::int64_t batch = sampler.batch_size * sampler.replicas;
  if (!sampler.drop_last || batch <= sampler.size) return true;
  problems.report(written_at(config, "data.drop_last"), [&] {
    return str("data.drop_last: leaves no step: it takes ", counted(batch, "sample"),
               ", and the training set has ", sampler.size);
  });
  return false;
}

// Such a run would end before it has reached its learning rate.
void check_warmup(const Config& config, const DataSets& data, keys::YamlProblems& problems) {
  const Sampler sampler(sampler_options(config, data, config.launch.replicas));
  const std::int64_t steps = total_steps(config, sampler);
  if (config.schedule.steps && config.schedule.warmup_steps > *config.schedule.steps) {
    problems.report(written_at(config, "schedule.warmup_steps"), [&] {
      return str("schedule.warmup_steps: must be at most schedule.steps, which is ",
                 *config.schedule.steps, "; is ", config.schedule.warmup_steps);
    });
  }
  if (config.schedule.warmup_steps <= steps) return;
  problems.report(written_at(config, "schedule.warmup_steps"), [&] {
    std::string length = "trainer.steps";
    if (config.trainer.samples) length = str("trainer.samples ", *config.trainer.samples);
    if (config.trainer.epochs) {
      length = str("trainer.epochs ", *config.trainer.epochs, " of ",
                   counted(sampler.steps_per_epoch(), "step"), " each");
    }
    return str("schedule.warmup_steps: must be at most the run's ", counted(steps, "step"), " (",
               length, "), is ", config.schedule.warmup_steps);
  });
}

// Whether batches of so many samples have a microbatch with one alone of all replicas.
bool has_lone_sample(const Config& config, std::int64_t batch) {
  const std::int64_t replicas = config.launch.replicas;
  const std::int64_t count = microbatches(config, replicas);
  // Replica 0 has the most, and of its microbatches the last the fewest; beyond the first replicas
  // without a sample nobody has any.
  for (std::int64_t m = 0; m < count; ++m) {
    std::int64_t samples = 0;
    for (std::int64_t replica = 0; replica < replicas && samples < 2; ++replica) {
      samples += shard(shard(batch, replicas, replica).size, count, m).size;
    }
    if (samples == 1) return true;
  }
  return false;
}

// What a step of one sample throws; "" if nothing.
std::string problem_of_one_sample(const Config& config, const DataSets& data) {
  Config own = config;
  own.launch = {.replicas = 1, .axis_name = config.launch.axis_name};
  own.zero.stage = 0;
  own.zero.accumulate = 1;
  own.trainer.global_batch.reset();
  own.checkpoint.save = CheckpointOptions::Save::none;
  // What hardly fits is refused later, with its numbers, and not tried here.
  const MemoryUse use = predicted_memory(own, data).host;
  if (!lack_of_memory(2 * static_cast<std::size_t>(use.total() + use.parameters)).empty())
    return {};
  std::string problem;
  const auto step = [&] {
    const auto model = make_whole_model(own, data.train->type());
    ZeroTrainer trainer(*model, zero_options(own, *model));
    const std::int64_t first = 0;
    const Batch batch = data.train->batch({&first, 1});
    try {
      (void)model->forward(batch.inputs);
    } catch (const std::exception& error) {
      problem = replicas::text_of(error);
    }
  };
  pmap(step, {.axis_name = own.launch.axis_name, .axis_size = 1})();
  return problem;
}

// "an epoch's last step has 1 sample of 25 in steps of 8" where the run comes to such a step and
// one of its microbatches has one sample alone; "" if none has. Every epoch ends like the first
// whole one, but that in which the run goes on from `point`.
std::string lone_rest(const Config& config, const DataSets& data, const ResumePoint* point) {
  const SamplerOptions options = sampler_options(config, data, config.launch.replicas);
  const std::int64_t batch = options.batch_size * options.replicas;
  const Sampler sampler(options);
  const Course course = course_of(config, data, config.launch.replicas, sampler, point);
  std::int64_t position = course.first_sample;
  std::int64_t steps = course.total_steps - course.first_step;
  for (int epoch = 0; epoch < 2 && !options.drop_last; ++epoch) {
    const std::int64_t end = sampler.start_of_epoch(position / options.size + 1);
    steps -= sampler.steps_between(position, end);
    if (steps < 0) return "";
    const std::int64_t left = (end - position) % batch;
    if (left > 0 && has_lone_sample(config, left)) {
      return str("an epoch's last step has ", counted(left, "sample"), " of ", end - position,
                 " in steps of ", batch);
    }
    position = end;
  }
  return "";
}

// Batch normalization can't train on one value of each channel. If a model leaves no more of one
// sample, a run must not come to such a step after hours.
void check_lone_samples(const Config& config, const DataSets& data, const ResumePoint* point,
                        keys::YamlProblems& problems) {
  const SamplerOptions options = sampler_options(config, data, config.launch.replicas);
  const std::int64_t batch = options.batch_size * options.replicas;
  const std::string rest = lone_rest(config, data, point);
  if (rest.empty() && !(batch <= options.size && has_lone_sample(config, batch))) return;
  const auto model = make_model(config, data.train->type());
  const bool normalizes = std::ranges::any_of(model->modules(), [](const auto& module) {
    return module->name().find("BatchNorm") != std::string::npos;
  });
  if (!normalizes) return;
  const std::string problem = problem_of_one_sample(config, data);
  if (problem.empty()) return;
  problems.report(written_at(config, "data.batch_size"), [&] {
    const std::string which =
        rest.empty()
            ? str("a step has ", counted(batch, "sample"), " (a larger batch_size has more)")
            : rest + " (data.drop_last: true leaves it out, another batch_size has another rest)";
    return str("data.batch_size: ", which,
               "; where all replicas together have one sample in a microbatch, the model fails: ",
               problem);
  });
}

// Returns whether parameters are left to train.
bool check_freeze(const Config& config, const DataSets& data, keys::YamlProblems& problems) {
  const auto& patterns = config.trainer.freeze;
  if (patterns.empty()) return true;
  Config unfrozen = config;
  unfrozen.trainer.freeze.clear();
  const auto model = make_model(unfrozen, data.train->type());
  const std::vector<std::string> names = training::module_parameters(*model).names;
  const keys::YamlPosition place = written_at(config, "trainer.freeze");
  std::set<std::string> frozen;
  for (const std::string& pattern : patterns) {
    std::vector<std::string> matched;
    std::ranges::copy_if(names, std::back_inserter(matched),
                         [&](const std::string& name) { return matches_pattern(pattern, name); });
    frozen.insert(matched.begin(), matched.end());
    if (!matched.empty()) continue;
    problems.report(place, [&] {
      return str("trainer.freeze: no parameter matches the pattern '", pattern,
                 "'; the parameters are ", listed(names));
    });
  }
  if (frozen.size() < names.size()) return true;
  problems.report(place, [&] {
    return str("trainer.freeze: no parameter is left to train; the parameters are ", listed(names));
  });
  return false;
}

// Checks the groups one after the other, to report each that is wrong. Such a group holds for no
// parameter, so the others mean the same without it.
void check_parameter_groups(const Config& config, const DataSets& data,
                            keys::YamlProblems& problems) {
  if (config.zero.optimizer.groups.empty()) return;
  const auto model = make_model(config, data.train->type());
  const std::vector<std::string> names = training::module_parameters(*model).names;
  std::vector<std::string> left = names;  // for which no group holds yet
  OptimizerOptions right;
  for (std::size_t i = 0; i < config.zero.optimizer.groups.size(); ++i) {
    const ParameterGroup& group = right.groups.emplace_back(config.zero.optimizer.groups[i]);
    const auto is_matched = [&](const auto& name) { return matches_pattern(group.pattern, name); };
    if (std::erase_if(left, is_matched) > 0) continue;
    problems.report(written_at(config, "optimizer.groups.pattern", i), [&]() -> std::string {
      try {
        check_groups(right, names);
        return "";
      } catch (const ValueError& error) {
        return error.what();
      }
    });
    right.groups.pop_back();
  }
}

// With only one class every model is always right. Most often the folder or the column is not the
// one that was meant.
void check_classes(const Config& config, const DataSets& data, keys::YamlProblems& problems) {
  if (data.train->type().classes != 1) return;
  const std::vector<std::string> names = data.train->class_names();
  problems.report(written_at(config, "data.name"), [&] {
    return str("data.name: ", config.data.name, " has only one class",
               names.empty() ? "" : " ('" + cut(names[0]) + "')", ": there is nothing to learn");
  });
}

// The loss and the metrics fit the data, and what decides on the way has figures to decide by.
void check_objective(const Config& config, const DataSets& data, keys::YamlProblems& problems) {
  const auto check = [&](const std::string& key, const auto& work) {
    try {
      work();
    } catch (const ValueError& error) {
      problems.report(written_at(config, key), [&] { return str(key, ": ", error.what()); });
    }
  };
  const SampleType sample = data.train->type();
  for (const auto& set : {data.train, data.validation, data.test}) {
    if (set) check("loss.name", [&] { (void)make_loss(config.loss, set->type()); });
  }
  const bool selects = config.checkpoint.best != "none";
  check("trainer.metrics", [&] {
    const Objective objective = make_objective(config, sample);
    if (selects) check("checkpoint.best", [&] { (void)objective.metric(config.checkpoint.best); });
  });
  for (const auto& [key, is_used] :
       {std::pair{"checkpoint.best", selects},
        std::pair{"trainer.patience", config.trainer.patience.has_value()}}) {
    if (is_used && data.validation && config.trainer.eval_every == 0) {
      problems.report(written_at(config, key), [&, name = std::string(key)] {
        return str(name,
                   ": decides by evaluations, and there is one alone, at the end: set "
                   "trainer.eval_every");
      });
    }
    if (!is_used || data.validation) continue;
    problems.report(written_at(config, key), [&, name = std::string(key)] {
      return str(name, ": decides by a validation set, and there is none: ",
                 "data.validation=0.1 takes a tenth of the training set");
    });
  }
}

}  // namespace

void check_job(const Config& config, const DataSets& data, const ResumePoint* point) {
  keys::YamlProblems problems;
  check_accumulate(config, data, problems);
  if (check_drop_last(config, data, problems)) {
    check_warmup(config, data, problems);
    check_lone_samples(config, data, point, problems);
  }
  check_classes(config, data, problems);
  check_objective(config, data, problems);
  if (check_freeze(config, data, problems)) check_parameter_groups(config, data, problems);
  problems.finish();
}

void check_initial_weights(const Config& config, const DataSets& data) {
  if (!config.init.from) return;
  const std::string& file = *config.init.from;
  keys::YamlProblems problems;
  const auto report = [&](const std::string& what) {
    problems.report(written_at(config, "model.init_from"),
                    [&] { return "model.init_from: " + what; });
  };
  WeightDifferences left_out;
  try {
    const auto checkpoint = storage::CheckpointFolder::resolved(file);
    std::error_code missing;
    if (std::filesystem::is_directory(checkpoint, missing)) verify_checkpoint(checkpoint);
    const Weights weights(file);
    WeightDifferences differences =
        compare_weights(weights, *make_model(config, data.train->type()));
    const bool fits_somewhere = differences.unexpected.size() < weights.entries().size();
    if (!config.init.strict && fits_somewhere) {
      left_out.missing.swap(differences.missing);
      left_out.unexpected.swap(differences.unexpected);
    }
    if (!differences.empty()) report(str(file, " does not fit the model: ", differences.text()));
  } catch (const DataError& error) {
    report(error.what());
  }
  problems.finish();
  if (!left_out.empty()) log_warning(str("model.init_from: ", file, ": ", left_out.text()));
}

}  // namespace lockstep
