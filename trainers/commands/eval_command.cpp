#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/checkpoint/weights.h"
#include "framework/collectives/axis_index.h"
#include "framework/data/data.h"
#include "framework/replicas/launch.h"
#include "models/model.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/commands.h"
#include "trainers/commands/opened_checkpoint.h"
#include "trainers/config/config_options.h"
#include "trainers/run/evaluate.h"

namespace lockstep {
namespace {

constexpr const char* kEvalHelp =
    R"(Evaluates a checkpoint on the validation and the test set, as the run that saved it did.

Usage:
  train eval --checkpoint DIR [flags]

  --checkpoint DIR        The checkpoint, such as runs/a/checkpoints/latest
  --replicas N            Number of replicas (default: the run's)
  --workers W             How many of them run at once
  --launch HOW            How replicas run, processes or threads
  --set dotted.key=value  Sets a key of data or parallel; may be repeated
  --quiet                 Print the figures, errors and warnings only
  --help                  Print this and end

With the run's number of replicas and math threads the figures are those of the run, to the last
bit. Of a run with trainer.ema_decay they are those of the averages; where the parameters' own
differ much, they stand beside them. Nothing is written. The training set is read only where the
validation set is a part of it: --set data.validation=0 does without both.
)";

// Flags that stand for a key of `parallel`.
const std::vector<std::string> kParallelFlags{"--replicas", "--workers", "--launch"};

std::vector<keys::Override> overrides_of(const std::vector<Argument>& arguments) {
  std::vector<keys::Override> overrides;
  for (const auto& [flag, value] : arguments) {
    if (flag == "--set") {
      overrides.push_back(parse_set_of("train eval", {"data", "parallel"}, value));
    }
    for (const std::string& known : kParallelFlags) {
      if (flag != known) continue;
      overrides.push_back({"parallel." + flag.substr(2), value, str(flag, " ", cut(value, 200))});
      // The run's own number of workers, and of samples a step, may not fit the new one.
      if (flag != "--replicas") continue;
      overrides.insert(overrides.begin(), {"trainer.accumulate", "1", overrides.back().origin});
      overrides.insert(overrides.begin(), {"parallel.workers", "0", overrides.back().origin});
    }
  }
  return overrides;
}

// In each replica.
void evaluate_checkpoint(const OpenedCheckpoint& checkpoint, const DataSets& data) {
  const Config& config = checkpoint.config;
  const auto model = checkpoint.model();
  const AxisNames axis = config.launch.axis_name;
  const Objective objective = make_objective(config, checkpoint.sample());
  const auto figures_on_all = [&] {
    std::map<std::string, Figures> all;
    for (const auto& [name, set] : named_sets(data)) {
      if (name == kTrainSet) continue;
      all[name] = evaluate(*model, *set, objective, config.data_use.batch_size, axis);
    }
    return all;
  };
  const std::map<std::string, Figures> all = figures_on_all();
  std::map<std::string, Figures> trained;
  if (evaluated_values(config) == ParameterValues::averaged) {
    load_safetensors(checkpoint.folder, *model, ParameterValues::trained);
    trained = figures_on_all();
  }
  if (axis_index(axis) != 0) return;
  for (const auto& [name, set] : named_sets(data)) {
    if (name == kTrainSet) continue;
    const Figures& figures = all.at(name);
    const bool has_both = trained.contains(name) && differ_much(figures, trained.at(name));
    (void)print(evaluation_text(checkpoint.info.step, name, figures,
                                has_both ? trained.at(name) : Figures{}) +
                "\n");
  }
}

}  // namespace

int run_eval(int argc, const char* const* argv) {
  FlagNames names{"train eval", {"--checkpoint", "--set"}, {"--quiet", "--help"}};
  names.with_value.insert(names.with_value.end(), kParallelFlags.begin(), kParallelFlags.end());
  const auto arguments = parse_command_line(argc, argv, names);
  if (value_of(arguments, "--help")) return print(kEvalHelp);
  set_quiet(value_of(arguments, "--quiet").has_value());
  const auto checkpoint = open_checkpoint("train eval", arguments, overrides_of(arguments));
  DataContext context;
  context.wanted.train = false;
  const DataSets data = checkpoint.data(context);
  require(data.test || data.validation, "the data set ", checkpoint.config.data.name,
          " has neither a test nor a validation set");
  return launch([&] { evaluate_checkpoint(checkpoint, data); }, checkpoint.config.launch);
}

}  // namespace lockstep
