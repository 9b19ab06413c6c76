#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/checkpoint/weights.h"
#include "framework/collectives/axis_index.h"
#include "framework/data/data.h"
#include "framework/replicas/launch.h"
#include "framework/tree/error_place.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/commands/opened_checkpoint.h"
#include "trainers/commands/shown_data.h"
#include "trainers/config/config_options.h"
#include "trainers/run/evaluate.h"

namespace lockstep {
namespace {

constexpr const char* kEvalHelp =
    R"(With the run's number of replicas (the default) and math threads the figures are those of the run,
to the last bit. Of a run with trainer.ema_decay they are those of the averages; where those of the
parameters themselves differ much, they stand beside them. Nothing is written. The training set is
read only where the validation set is a part of it: --set data.validation=0 does without both.
)";

// In each replica.
void evaluate_checkpoint(const OpenedCheckpoint& checkpoint, const DataSets& data) {
  const Config& config = checkpoint.config;
  const auto model = checkpoint.model();
  const AxisNames axis = config.launch.axis_name;
  const Objective objective = make_objective(config, checkpoint.sample());
  const auto sets = named_sets({.validation = data.validation, .test = data.test});
  const auto figures_on_all = [&] {
    std::map<std::string, Figures> all;
    for (const auto& [name, set] : sets) {
      all[name] = placed(
          [&] { return "in the evaluation on the " + name + " set"; },
          [&] { return evaluate(*model, *set, objective, config.data_use.batch_size, axis); });
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
  for (const auto& [name, set] : sets) {
    const Figures& figures = all.at(name);
    const bool has_both = trained.contains(name) && differ_much(figures, trained.at(name));
    (void)print(evaluation_text(checkpoint.info.step, name, figures,
                                has_both ? trained.at(name) : Figures{}) +
                "\n");
  }
}

}  // namespace

int run_eval(int argc, const char* const* argv) {
  const std::string program = program_name("eval");
  std::optional<std::string> named;
  std::vector<keys::Override> overrides;
  bool quiet = false;
  CommandLine line{
      .program = program,
      .usage = "--checkpoint DIR [flags]",
      .what =
          "Evaluates a checkpoint on the validation and the test set, as the run "
          "that saved it did.",
      .flags = {checkpoint_flag(named),
                set_flag(overrides, "Sets a key of data or parallel; may be repeated", program,
                         {"data", "parallel"}),
                {"--quiet", "", "Print the figures, errors and warnings only", sets(quiet)}},
      .more = kEvalHelp};
  add_parallel_flags(line, overrides,
                     {.replicas = "the run's",
                      .workers = "the run's number; with --replicas all",
                      .launch = "the run's"});
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  set_quiet(quiet);
  // With another number of replicas the run's own number of workers, and of samples a step, may not
  // fit.
  const auto replicas = std::ranges::find(overrides, "parallel.replicas", &keys::Override::key);
  if (replicas != overrides.end()) {
    const std::string origin = replicas->origin;
    overrides.insert(overrides.begin(),
                     {{"parallel.workers", "0", origin}, {"trainer.accumulate", "1", origin}});
  }
  const auto checkpoint = open_checkpoint(program, named, overrides);
  DataContext context = checkpoint.data_context();
  context.wanted.train = false;
  const DataSets data = load_shown(checkpoint.config.data, context);
  require(data.test || data.validation, "the data set ", checkpoint.config.data.name,
          " has neither a test nor a validation set");
  return launch([&] { evaluate_checkpoint(checkpoint, data); }, checkpoint.config.launch);
}

}  // namespace lockstep
