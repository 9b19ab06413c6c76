#include "trainers/run/check_job.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/weights.h"
#include "framework/data/finite.h"
#include "framework/data/sampler.h"
#include "framework/keys/yaml_problems.h"
#include "framework/maps/first_failure.h"
#include "framework/maps/pmap.h"
#include "framework/objectives/objectives.h"
#include "framework/optim/optimizer_options.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/training/forward_place.h"
#include "framework/training/module_parameters.h"
#include "framework/training/zero.h"
#include "models/model.h"
#include "trainers/config/config_options.h"
#include "trainers/run/course.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/memory_report.h"

namespace lockstep {
namespace {

// The checks of a job, in the order of check_job().
class JobCheck {
 public:
  JobCheck(const Config& config, const DataSets& data, const ResumePoint* point)
      : config_(config),
        data_(data),
        point_(point),
        options_(sampler_options(config, data)),
        batch_(options_.batch_size * options_.replicas) {}

  void check_all() {
    check_replicas();
    check_accumulate();
    if (check_drop_last()) {
      check_warmup();
      check_lone_samples();
    }
    check_classes();
    check_objective();
    if (check_freeze()) check_parameter_groups();
    problems_.finish();
  }

  void check_weights() {
    if (!config_.init.from) return;
    const std::string key = "model.init_from";
    const std::string& file = *config_.init.from;
    WeightDifferences left_out;
    try {
      const auto checkpoint = storage::CheckpointFolder::resolved(file);
      std::error_code missing;
      if (std::filesystem::is_directory(checkpoint, missing)) verify_checkpoint(checkpoint);
      Weights weights(file);
      weights.leave_out(config_.init.except);
      const auto model = make_model(config_, data_.train->type());
      check_except(*model);
      WeightDifferences differences = compare_weights(weights, *model);
      const bool fits_somewhere = differences.unexpected.size() < weights.entries().size();
      if (!config_.init.strict && fits_somewhere) {
        left_out.missing.swap(differences.missing);
        left_out.unexpected.swap(differences.unexpected);
      }
      if (!differences.empty()) {
        report(key, file, " does not fit the model: ", differences.text(),
               differences.misshapen.empty()
                   ? ""
                   : "; model.init_from_except leaves out those that a pattern is for");
      } else {
        check_finite(weights, *model);
      }
    } catch (const DataError& error) {
      report(key, error.what());
    }
    problems_.finish();
    if (!left_out.empty()) log_warning(str(key, ": ", file, ": ", left_out.text()));
  }

 private:
  void check_finite(const Weights& weights, const Model& model) {
    for (const auto& parameter : model.named_parameters()) {
      const at::Tensor values = weight_of(weights, model, parameter.key());
      if (!values.defined() || is_finite(values)) continue;
      report("model.init_from", *config_.init.from, ": '", parameter.key(),
             "' has NaN or infinity");
    }
  }

  void check_except(const Model& model) {
    std::vector<std::string> names = model.named_parameters().keys();
    std::ranges::copy(model.named_buffers().keys(), std::back_inserter(names));
    for (const std::string& pattern : config_.init.except) {
      const auto is_matched = [&](const auto& name) { return matches_pattern(pattern, name); };
      if (std::ranges::any_of(names, is_matched)) continue;
      report("model.init_from_except", "nothing of the model matches the pattern '", pattern,
             "'; it has ", listed(names));
    }
  }

  void check_replicas() {
    const HostOptions& hosts = config_.launch.hosts;
    const std::int64_t own =
        hosts.replicas > 0 ? hosts.replicas : ceil_div(options_.replicas, hosts.count);
    if (own <= kMostReplicasOfHost) return;
    report("parallel.replicas", "a host runs at most ", kMostReplicasOfHost, " of them, and ", own,
           " would run on this one");
  }

  // Microbatches without a sample cost as much as others: far too many of them look like a hang.
  void check_accumulate() {
    const std::int64_t accumulate = microbatches(config_);
    const std::int64_t samples = options_.size;
    if (accumulate == 1 || accumulate * options_.replicas <= samples) return;
    if (config_.trainer.global_batch) {
      return report("trainer.global_batch",
                    "must be at most the training set's samples, of which there are ", samples,
                    "; is ", *config_.trainer.global_batch);
    }
    report("trainer.accumulate",
           "times parallel.replicas it must be at most the training set's samples, "
           "of which there are ",
           samples, "; is ", accumulate, " times ", options_.replicas);
  }

  // Returns whether an epoch has a step.
  bool check_drop_last() {
    if (!options_.drop_last || batch_ <= options_.size) return true;
    report("data.drop_last", "leaves no step: it takes ", counted(batch_, "sample"),
           ", and the training set has ", options_.size);
    return false;
  }

  // Such a run would end before it has reached its learning rate.
  void check_warmup() {
    const Sampler sampler(options_);
    const std::int64_t steps = total_steps(config_, sampler);
    const auto& [fixed, warmup] = std::pair(config_.schedule.steps, config_.schedule.warmup_steps);
    const std::string key = "schedule.warmup_steps";
    if (fixed && warmup > *fixed) {
      report(key, "must be at most schedule.steps, which is ", *fixed, "; is ", warmup);
    }
    if (warmup <= steps) return;
    std::string length = "trainer.steps";
    if (config_.trainer.samples) length = str("trainer.samples ", *config_.trainer.samples);
    if (config_.trainer.epochs) {
      length = str("trainer.epochs ", *config_.trainer.epochs, " of ",
                   counted(sampler.steps_per_epoch(), "step"), " each");
    }
    report(key, "must be at most the run's ", counted(steps, "step"), " (", length, "), is ",
           warmup);
  }

  // Batch normalization can't train on one value of each channel. If a model leaves no more of one
  // sample, a run must not come to such a step after hours.
  void check_lone_samples() {
    const std::string rest = lone_rest();
    if (rest.empty() && !(batch_ <= options_.size && has_lone_sample(batch_))) return;
    const auto model = make_model(config_, data_.train->type());
    const bool normalizes = std::ranges::any_of(model->modules(), [](const auto& module) {
      return module->name().find("BatchNorm") != std::string::npos;
    });
    const std::string problem = normalizes ? problem_of_one_sample() : "";
    if (problem.empty()) return;
    report("data.batch_size",
           rest.empty()
               ? str("a step has ", counted(batch_, "sample"), " (a larger batch_size has more)")
               : rest +
                     " (data.drop_last: true leaves it out, another batch_size has another "
                     "rest)",
           "; where all replicas together have one sample in a microbatch, the model fails: ",
           problem);
  }

  // "an epoch's last step has 1 sample of 25 in steps of 8" where the run comes to such a step and
  // one of its microbatches has one sample alone; "" if none has. Every epoch ends like the first
  // whole one, but that in which the run goes on.
  [[nodiscard]] std::string lone_rest() const {
    const Sampler sampler(options_);
    const Course course = course_of(config_, data_, point_);
    std::int64_t position = course.first_sample;
    std::int64_t steps = course.total_steps - course.first_step;
    for (int epoch = 0; epoch < 2 && !options_.drop_last; ++epoch) {
      const std::int64_t end = sampler.start_of_epoch(position / options_.size + 1);
      steps -= sampler.steps_between(position, end);
      if (steps < 0) return "";
      const std::int64_t left = (end - position) % batch_;
      if (left > 0 && has_lone_sample(left)) {
        return str("an epoch's last step has ", counted(left, "sample"), " of ", end - position,
                   " in steps of ", batch_);
      }
      position = end;
    }
    return "";
  }

  // Whether batches of so many samples have a microbatch with one alone of all replicas.
  [[nodiscard]] bool has_lone_sample(std::int64_t batch) const {
    const std::int64_t count = microbatches(config_);
    // Replica 0 has the most, and of its microbatches the last the fewest; beyond the first
    // replicas without a sample nobody has any.
    for (std::int64_t m = 0; m < count; ++m) {
      std::int64_t samples = 0;
      for (std::int64_t replica = 0; replica < options_.replicas && samples < 2; ++replica) {
        samples += shard(shard(batch, options_.replicas, replica).size, count, m).size;
      }
      if (samples == 1) return true;
    }
    return false;
  }

  // What a step of one sample throws; "" if nothing.
  [[nodiscard]] std::string problem_of_one_sample() const {
    const Config own = alone(config_);
    // What hardly fits is refused later, with its numbers, and not tried here.
    const MemoryUse use = predicted_memory(own, data_).host;
    const auto needed = static_cast<std::size_t>(use.total() + use.parameters);
    if (!lack_of_memory(2 * needed).empty()) return {};
    std::string problem;
    const auto step = [&] {
      const auto model = make_whole_model(own, data_.train->type());
      ZeroTrainer trainer(*model, zero_options(own, *model));
      const Batch batch = made_batch({*data_.train, {0}, "training"});
      try {
        (void)run_forward(*model, batch.inputs);
      } catch (const std::exception& error) {
        problem = maps::text_of(error);
      }
    };
    pmap(step, {.axis_name = own.launch.axis_name, .axis_size = 1})();
    return problem;
  }

  // With only one class every model is always right. Most often the folder or the column is not the
  // one that was meant.
  void check_classes() {
    if (data_.train->type().classes != 1) return;
    const std::vector<std::string> names = data_.train->class_names();
    report("data.name", config_.data.name, " has only one class",
           names.empty() ? "" : " ('" + cut(names[0]) + "')", ": there is nothing to learn");
  }

  // Returns whether the loss fits such samples. What is wrong with the weights is told of their
  // key.
  bool check_loss(const SampleType& sample) {
    try {
      (void)make_loss(config_.loss, sample);
      return true;
    } catch (const ValueError& error) {
      const std::string problem = error.what();
      const std::string weights = "loss.class_weights";
      if (!problem.starts_with(weights)) {
        report("loss.name", problem);
      } else {
        const auto names =
            mapped(data_.train->class_names(), [](const auto& name) { return cut(name); });
        problems_.report(written_at(weights), [&] {
          return str(problem, names.empty() ? "" : ", in this order: " + listed(names));
        });
      }
      return false;
    }
  }

  // Ends what is said of a checkpoint.best that is no figure.
  [[nodiscard]] std::string remedy_of_best(const Objective& objective) const {
    const std::string near = nearest(config_.checkpoint.best, metric_registry().names());
    const bool is_new =
        !near.empty() && std::ranges::count(objective.metrics, near, &NamedMetric::first) == 0;
    return str("; trainer.metrics adds others", is_new ? ", such as " + near : "",
               "; or write none");
  }

  // The loss and the metrics fit the data, and what decides on the way has figures to decide by.
  void check_objective() {
    bool has_loss = true;
    for (const auto& set : {data_.train, data_.validation, data_.test}) {
      if (!set) continue;
      has_loss &= check_loss(set->type());
    }
    const std::string& best = config_.checkpoint.best;
    const bool selects = best != "none";
    // Metrics are of a loss: without one they are not to blame.
    if (has_loss)
      check("trainer.metrics", [&] {
        const Objective objective = make_objective(config_, data_.train->type(), data_.fitted);
        const auto find_best = [&] { (void)objective.metric(best); };
        if (selects) check("checkpoint.best", find_best, remedy_of_best(objective));
      });
    for (const auto& [key, is_used] :
         {std::pair{"checkpoint.best", selects},
          std::pair{"trainer.patience", config_.trainer.patience.has_value()}}) {
      if (is_used && !data_.validation) {
        report(key,
               "decides by a validation set, and there is none: data.validation=0.1 "
               "takes a tenth of the training set");
      } else if (is_used && config_.trainer.eval_every == 0) {
        report(key,
               "decides by evaluations, and there is one alone, at the end: set "
               "trainer.eval_every");
      }
    }
  }

  // Returns whether parameters are left to train.
  bool check_freeze() {
    if (config_.trainer.freeze.empty()) return true;
    Config unfrozen = config_;
    unfrozen.trainer.freeze.clear();
    const std::vector<std::string> names = parameters_of(unfrozen);
    const std::string known = "the parameters are " + listed(names);
    std::vector<std::string> left = names;
    for (const std::string& pattern : config_.trainer.freeze) {
      const auto is_matched = [&](const auto& name) { return matches_pattern(pattern, name); };
      std::erase_if(left, is_matched);
      if (std::ranges::any_of(names, is_matched)) continue;
      report("trainer.freeze", "no parameter matches the pattern '", pattern, "'; ", known);
    }
    if (!left.empty()) return true;
    report("trainer.freeze", "no parameter is left to train; ", known);
    return false;
  }

  // Checks the groups one after the other, to report each that is wrong. Such a group holds for no
  // parameter, so the others mean the same without it.
  void check_parameter_groups() {
    if (config_.zero.optimizer.groups.empty()) return;
    const std::vector<std::string> names = parameters_of(config_);
    std::vector<std::string> left = names;  // for which no group holds yet
    OptimizerOptions right;
    for (std::size_t i = 0; i < config_.zero.optimizer.groups.size(); ++i) {
      const ParameterGroup& group = right.groups.emplace_back(config_.zero.optimizer.groups[i]);
      const auto is_matched = [&](const auto& name) {
        return matches_pattern(group.pattern, name);
      };
      if (std::erase_if(left, is_matched) > 0) continue;
      problems_.report(written_at("optimizer.groups.pattern", i), [&]() -> std::string {
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

  [[nodiscard]] std::vector<std::string> parameters_of(const Config& config) const {
    const auto model = make_model(config, data_.train->type());
    return training::module_parameters(*model).names;
  }

  // The place where the key was written; none in a config that was not read from a file.
  [[nodiscard]] keys::YamlPosition written_at(const std::string& key, std::size_t index = 0) const {
    const auto places = entry_of(config_.places, key);
    return places && index < places->size() ? (*places)[index] : keys::YamlPosition();
  }

  template <typename... Parts>
  void report(const std::string& key, const Parts&... parts) {
    problems_.report(written_at(key), [&] { return str(key, ": ", parts...); });
  }

  // Reports what `work` throws, with a remedy. Returns whether that is nothing.
  bool check(const std::string& key, const std::function<void()>& work,
             const std::string& remedy = {}) {
    try {
      work();
      return true;
    } catch (const ValueError& error) {
      report(key, error.what(), remedy);
      return false;
    }
  }

  const Config& config_;
  const DataSets& data_;
  const ResumePoint* point_;
  SamplerOptions options_;
  std::int64_t batch_;  // of all replicas
  keys::YamlProblems problems_;
};

}  // namespace

void check_job(const Config& config, const DataSets& data, const ResumePoint* point) {
  JobCheck(config, data, point).check_all();
}

void check_initial_weights(const Config& config, const DataSets& data) {
  JobCheck(config, data, nullptr).check_weights();
}

}  // namespace lockstep
