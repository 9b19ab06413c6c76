#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/checkpoint/weights.h"
#include "framework/collectives/axis_index.h"
#include "framework/data/data.h"
#include "framework/launch/launch.h"
#include "framework/tree/error_place.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/commands/opened_checkpoint.h"
#include "trainers/commands/set_details.h"
#include "trainers/commands/shown_data.h"
#include "trainers/config/config_options.h"
#include "trainers/run/evaluate.h"

namespace lockstep {
namespace {

constexpr const char* kEvalHelp =
    R"(With the run's number of replicas (the default) and math threads the figures are those of the run,
to the last bit. Of a run with trainer.ema_decay they are those of the averages; where those of the
parameters themselves differ much, they stand beside them. Nothing is written. --split train
measures the samples that were trained on, as they are: not cropped at random, not flipped. Without
it the training set is read only where the validation set is a part of it: --set data.validation=0
does without both.

Below the figures stand, of classes, each class's precision, recall and F1 and how many of its
targets were predicted as each class; of two classes also the AUC; of values the quantiles of target
- prediction, in the unit of the file. Not of tokens. Averages: "macro" is the mean over the
classes, "weighted" weighs each by its targets. --format json prints all of it as one object.
)";

using Json = nlohmann::ordered_json;

// What eval says of a set.
struct Told {
  std::string set;
  std::int64_t samples = 0;
  Figures figures = {};
  Json details = {};
  Figures trained = {};  // of the parameters themselves, if the figures are of their averages
};

Json json_of(const OpenedCheckpoint& checkpoint, const std::vector<Told>& told) {
  const bool is_averaged = evaluated_values(checkpoint.config) == ParameterValues::averaged;
  Json all{{"checkpoint", checkpoint.folder.string()},
           {"step", checkpoint.info.step},
           {"weights", name_of(evaluated_values(checkpoint.config))}};
  for (const Told& of_set : told) {
    Json& entry = all["sets"][of_set.set];
    entry = {{"samples", of_set.samples}, {"figures", of_set.figures}};
    if (is_averaged) entry["trained_figures"] = of_set.trained;
    entry.update(of_set.details);
  }
  return all;
}

std::string text_of(const OpenedCheckpoint& checkpoint, const std::vector<Told>& told,
                    bool has_details) {
  std::string lines;
  std::string tables;
  for (const auto& [set, samples, figures, details, trained] : told) {
    const bool has_both = !trained.empty() && differ_much(figures, trained);
    lines += evaluation_text(checkpoint.info.step, set, figures, has_both ? trained : Figures{},
                             evaluated_values(checkpoint.config)) +
             "\n";
    if (has_details) tables += details_text(set, details);
  }
  return lines + tables;
}

// In each replica.
std::vector<Told> evaluate_checkpoint(const OpenedCheckpoint& checkpoint, const DataSets& data) {
  const Config& config = checkpoint.config;
  const auto model = checkpoint.model();
  const AxisNames axis = config.launch.axis_name;
  const Objective objective = make_objective(config, checkpoint.sample(), checkpoint.record.fitted);
  const SetDetails details(checkpoint.sample(), checkpoint.record.fitted,
                           objective.loss->ignore_index());
  std::vector<NamedTally> tallies(objective.metrics.begin(), objective.metrics.end());
  tallies.insert(tallies.end(), details.tallies().begin(), details.tallies().end());
  const auto sets = named_sets(data);
  const auto counted = [&](const std::string& name, const Dataset& set) {
    return placed([&] { return "in the evaluation on the " + name + " set"; },
                  [&] {
                    return tallied(*model, set, tallies, config.data_use.batch_size, axis,
                                   objective.scales);
                  });
  };
  std::vector<Told> told;
  for (const auto& [name, set] : sets) {
    const auto totals = counted(name, *set);
    const auto of_details = totals.begin() + std::ssize(objective.metrics);
    told.push_back({.set = name,
                    .samples = set->size(),
                    .figures = figures_of(objective, totals),
                    .details = details.json({of_details, totals.end()}, set->class_names())});
  }
  if (evaluated_values(config) == ParameterValues::averaged) {
    load_safetensors(checkpoint.folder, *model, ParameterValues::trained);
    tallies.resize(objective.metrics.size());
    for (std::size_t i = 0; i < sets.size(); ++i) {
      told[i].trained = figures_of(objective, counted(sets[i].first, *sets[i].second));
    }
  }
  return told;
}

}  // namespace

int run_eval(int argc, const char* const* argv) {
  const std::string program = program_name("eval");
  std::optional<std::string> named;
  std::vector<keys::Override> overrides;
  std::vector<std::string> splits;
  std::string format = "text";
  bool quiet = false;
  CommandLine line{
      .program = program,
      .usage = "--checkpoint DIR [flags]",
      .what =
          "Evaluates a checkpoint on the validation and the test set, as the run\n"
          "that saved it did, or on the sets that are named.",
      .flags = {checkpoint_flag(named),
                {"--split", "SET",
                 "train, validation or test; may be repeated (default: validation and test)",
                 [&](const Argument& argument) { splits.push_back(argument.value); }},
                set_flag(overrides, "Sets a key of data or parallel; may be repeated", program,
                         {"data", "parallel"}),
                {"--format", "FORMAT", "text (default) or json, one object for programs",
                 sets(format)},
                {"--quiet", "", "Print the figures, errors and warnings only, and no tables",
                 sets(quiet)}},
      .more = kEvalHelp};
  add_parallel_flags(line, overrides,
                     {.replicas = "the run's",
                      .workers = "the run's number; with --replicas all",
                      .launch = "the run's"});
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  require(format == "text" || format == "json", "--format ", cut(format), ": must be text or json");
  const WantedSets wanted = splits.empty() ? WantedSets{.train = false} : wanted_sets(splits);
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
  context.wanted = wanted;
  const DataSets data = load_shown(checkpoint.config.data, context);
  const auto sets = named_sets(data);
  for (const std::string& split : splits) {
    require(std::ranges::count(sets, split, &decltype(sets)::value_type::first) > 0, "--split ",
            split, ": ", checkpoint.without_set(split));
  }
  require(!sets.empty(), "the data set ", checkpoint.config.data.name,
          " has neither a test nor a validation set: --split train takes the training set");
  return launch(
      [&] {
        const auto told = evaluate_checkpoint(checkpoint, data);
        if (axis_index(checkpoint.config.launch.axis_name) != 0) return;
        // Names may hold any bytes, JSON only UTF-8.
        const auto replace = Json::error_handler_t::replace;
        // The reader of the pipe has gone, as after "| head": the rest is not printed.
        (void)print_to_reader(format == "json"
                                  ? json_of(checkpoint, told).dump(-1, ' ', false, replace) + "\n"
                                  : printable(text_of(checkpoint, told, !quiet)));
      },
      checkpoint.config.launch);
}

}  // namespace lockstep
