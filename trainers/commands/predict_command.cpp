#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/launch/launch.h"
#include "framework/storage/file.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/commands/given_files.h"
#include "trainers/commands/opened_checkpoint.h"
#include "trainers/commands/predictions.h"
#include "trainers/commands/shown_data.h"
#include "trainers/config/config_options.h"

namespace lockstep {
namespace {

constexpr const char* kPredictHelp =
    R"(FILE is what the model's data are: a table of CSV, a picture, an array of NumPy's; FOLDER has
pictures, in it and below; - is standard input. Several are predicted one after another. A table's
first line names its columns, as those of the run were.

Without any, and without --split, it is the test set. With --set, such as another data.file, it is
the first of these: the test set, if it has other samples than the run's; the training set, if it
has other samples than the run's or there is no test set; the test set; the validation set. A line
on stderr says which.

A line has the sample's index, prediction and target; of a picture's file also its path in its
folder, or as FILE names it. Of classes the prediction is the one with the largest output, and score
is that output. With --with, a column whose name the line has already is called own_NAME.
Probabilities are the softmax of all outputs: in CSV columns probability_NAME, and top_1_class,
top_1_name, top_1_probability, …; in JSON an object by the classes' names, and a list of objects.
Values have the unit of the file, whether or not they were normalized. Damaged samples, such as
pictures that can't be read and rows of a table with a cell that is no number, have no line: they
are named on stderr, of rows the first 10, and the exit status is 2. Outputs that are no finite
numbers are NaN or inf in CSV and null in JSON; a warning says how many samples have such.

Other files are read as those that the model was trained on: by the same columns, means, deviations
and classes. They may lack targets: the pictures in data.root, and in folders below it, need no
folder for each class. With --split the files of that set alone need to be there. The model runs in
this process, on all cores.
)";

using Overrides = std::vector<keys::Override>;

struct NamedSet {
  std::string name;
  std::shared_ptr<const Dataset> set;
  bool is_other = false;  // than the run's; where nothing else is there, as flags say
};

std::string words_of(const std::string& set) {
  return set == kTrainSet ? "the training set" : str("the ", set, " set");
}

// For this set alone, with all its damaged samples.
DataContext context_of(const OpenedCheckpoint& checkpoint, const std::string& name) {
  DataContext context = checkpoint.data_context();
  context.needs_targets = false;
  context.wanted = wanted_sets({name});
  context.keeps_damaged = true;
  context.keeps_columns = true;
  return context;
}

// With all its damaged samples, or without those that are `damaged`.
std::shared_ptr<const Dataset> load_set(const OpenedCheckpoint& checkpoint, const std::string& name,
                                        const std::optional<LeftOut>& damaged = {}) {
  DataContext context = context_of(checkpoint, name);
  context.damaged = damaged;
  context.keeps_damaged = context.keeps_columns = !damaged;
  const DataSets sets = load_shown(checkpoint.config.data, context);
  return name == kTrainSet ? sets.train : name == kValidationSet ? sets.validation : sets.test;
}

// Whether the run had no such set, or one with other samples.
bool is_other(const OpenedCheckpoint& checkpoint, const NamedSet& given) {
  const auto own = checkpoint.record.sets.find(given.name);
  if (own == checkpoint.record.sets.end()) return true;
  const auto& [size, fingerprint, left_out] = own->second;
  const auto set = left_out.empty()
                       ? given.set
                       : load_set(checkpoint, given.name, LeftOut{{given.name, left_out}});
  return fingerprint != set->fingerprint();
}

// The set that is meant if none is named: see kPredictHelp. The set may be null.
NamedSet default_set(const OpenedCheckpoint& checkpoint, bool has_other_data) {
  const auto look_for = [&](const std::string& name) -> NamedSet {
    try {
      return {name, load_set(checkpoint, name)};
    } catch (const DataError& error) {
      throw DataError(
          str(words_of(name), ", looked for because --split names none: ", error.what()));
    }
  };
  NamedSet test = look_for(kTestSet);
  test.is_other = has_other_data && test.set && is_other(checkpoint, test);
  if (!has_other_data || test.is_other) return test;
  NamedSet train = look_for(kTrainSet);
  train.is_other = train.set && (!test.set || is_other(checkpoint, train));
  if (train.is_other) return train;
  if (test.set) return test;
  NamedSet validation = look_for(kValidationSet);
  validation.is_other = true;
  return validation;
}

// "the test set: 3 samples". Of the files that are given, and of the one file or folder that flags
// name and the run had not, that: "3 pictures of holidays".
std::string text_of(const OpenedCheckpoint& checkpoint, const NamedSet& picked,
                    std::vector<std::string> paths, const Overrides& overrides) {
  const std::string samples =
      counted(picked.set->size(), data_registry().at(checkpoint.config.data.name).sample);
  if (!paths.empty()) {
    std::ranges::replace(paths, formats::kStandardInput, "standard input");
    return str(samples, " of ", listed(paths, 3));
  }
  const auto files =
      filtered(mapped(overrides, &keys::Override::value), [](const std::string& value) {
        std::error_code error;
        return std::filesystem::exists(value, error);
      });
  const std::string set = words_of(picked.name);
  if (!picked.is_other || files.size() != 1) {
    return str(set, ": ", samples);
  }
  return str(samples, " of ", files[0], picked.set->has_targets() ? ", " + set : "");
}

[[noreturn]] void fail_existing(const std::string& output) {
  throw ValueError(str(output, " exists already: name another file, or replace it with --force"));
}

// The one that is asked for, or that the output's name says.
PredictionFormat format_of(const std::optional<std::string>& asked,
                           const std::optional<std::string>& output) {
  require(!asked || *asked == "csv" || *asked == "jsonl", "--format ", cut(asked.value_or("")),
          ": must be csv or jsonl");
  const std::string ending = std::filesystem::path(output.value_or("")).extension();
  require(asked || ending != ".json", "--output ", cut(output.value_or("")),
          ": is this to be --format jsonl, one JSON object a line, or csv?");
  const bool has_objects = asked ? *asked == "jsonl" : ending == ".jsonl";
  return has_objects ? PredictionFormat::jsonl : PredictionFormat::csv;
}

// The file to write: what `output` leads to, if it is a link. So a link stays, and one to a pipe,
// as /dev/stdout may be, is refused.
std::string checked_output(const std::string& output, bool may_exist) {
  check_folder_of("--output", output);
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(output, error))) return output;
  if (!may_exist) fail_existing(output);
  require(std::filesystem::is_regular_file(output, error), "--output ", output,
          ": it is no file, and --force replaces files alone");
  return std::filesystem::canonical(output);
}

}  // namespace

int run_predict(int argc, const char* const* argv) {
  const std::string program = program_name("predict");
  std::optional<std::string> named, split, format, output;
  std::vector<std::string> paths;
  bool is_forced = false;
  PredictionOptions options;
  Overrides overrides;
  const CommandLine line{
      .program = program,
      .usage = "--checkpoint DIR [FILE|FOLDER|-]... [flags]",
      .what =
          "Writes what a checkpoint's model says of each sample of files, or of a set, in their "
          "order.",
      .flags =
          {checkpoint_flag(named),
           {"--split", "SET", "train, validation or test (default: see below)", sets(split)},
           {"--format", "FORMAT",
            "csv or jsonl, one JSON object a line (default: as FILE.jsonl of --output says, or "
            "csv)",
            sets(format)},
           {"--with", "COLUMNS",
            "Columns to copy beside each prediction: names between commas, or * for all",
            [&](const Argument& argument) { options.with.push_back(argument.value); }},
           {"--probabilities", "", "Add each class's probability", sets(options.probabilities)},
           {"--top", "K", "Add the K likeliest classes, with names and probabilities",
            sets(options.top, number_of<std::int64_t>("an integer"))},
           {"--output", "FILE",
            "The new file (default, and -: stdout); without --force it must not exist yet",
            sets(output)},
           {"--force", "", "Replace --output FILE, once the new one is whole", sets(is_forced)},
           set_flag(overrides,
                    "Sets a key of data, such as other files; may be repeated. The training "
                    "set is then whole: data.validation takes no part of it",
                    program, {"data"})},
      .more = kPredictHelp,
      .operand = [&](const std::string& path) { paths.push_back(path); },
      .has_many = true};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  if (split) (void)wanted_sets({*split});
  if (output == formats::kStandardInput) output.reset();  // as others write stdout
  options.format = format_of(format, output);
  require(output || !is_forced, "--force needs --output FILE, which it replaces");
  if (output) output = checked_output(*output, is_forced);
  require(paths.empty() || !split, "--split names a set of the run, but '", cut(join(paths)),
          "' is given: leave one of them out");
  const bool has_other_data = !overrides.empty() || !paths.empty();
  if (has_other_data && split != kValidationSet) {
    overrides.insert(overrides.begin(), {"data.validation", "0", program});
  }
  const std::string way = named || paths.empty() ? "" : line.flags[0].meant(paths[0], "");
  require(way.empty(), "--checkpoint DIR is needed (did you mean '", cut(way, 200), "'?); see ",
          program, " --help");
  OpenedCheckpoint checkpoint = open_checkpoint(program, named, overrides);
  check_predictable(checkpoint.sample(), options);
  const keys::Picked& data = checkpoint.config.data;
  const NamedSet picked =
      !paths.empty() ? NamedSet{kTestSet, load_given(data, context_of(checkpoint, kTestSet), paths)}
      : split        ? NamedSet{*split, load_set(checkpoint, *split)}
                     : default_set(checkpoint, has_other_data);
  const std::shared_ptr<const Dataset>& set = picked.set;
  require(set != nullptr, split ? str("--split ", *split, ": ") : "",
          checkpoint.without_set(picked.name), split ? "" : ": name one with --split");
  (void)columns_with(*set, options.with);
  if (!split) log_info("predicts " + text_of(checkpoint, picked, paths, overrides));
  const auto model = checkpoint.model();
  std::int64_t damaged = 0;
  options.batch_size = checkpoint.config.data_use.batch_size;
  options.target_scales = checkpoint.record.fitted.target_scales;
  // A table of which many rows are wrong is most likely wrong in one way.
  constexpr std::int64_t kMostRows = 10;
  const std::int64_t most = set->columns().empty() ? set->size() : kMostRows;
  options.on_damaged = [&](const DamagedSample& sample) {
    if (++damaged <= most) log_error(str("sample ", sample.index, ": ", sample.reason));
  };
  checkpoint.config.launch.threads_per_replica = 0;  // all cores are this replica's
  set_quiet(true);
  const int status = launch(
      [&] {
        if (!output) {
          return write_predictions(*model, *set, options, [](std::string_view text) {
            (void)print_data(std::string(text));
          });
        }
        NewFile file(*output);
        write_predictions(*model, *set, options, [&](std::string_view text) { file.write(text); });
        if (is_forced) {
          file.publish_over();
        } else if (!file.publish()) {
          fail_existing(*output);
        }
      },
      alone(checkpoint.config).launch);
  if (status != 0 || damaged == 0) return status;
  throw DataError(str(damaged, " of ", counted(set->size(), "sample"),
                      damaged == 1 ? " is damaged and has" : " are damaged and have", " no line",
                      damaged < set->size() ? "; the others have theirs" : "",
                      damaged > most ? str("; the first ", most, " are named above") : ""));
}

}  // namespace lockstep
