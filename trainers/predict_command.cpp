#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/storage/file.h"
#include "trainers/command_line.h"
#include "trainers/commands.h"
#include "trainers/opened_checkpoint.h"
#include "trainers/predictions.h"
#include "trainers/run_alone.h"

namespace lockstep {
namespace {

constexpr const char* kPredictHelp =
    R"(Writes what a checkpoint's model says of each sample of a set, in the set's order.

Usage:
  train predict --checkpoint DIR [flags]

  --checkpoint DIR     The checkpoint, such as runs/a/checkpoints/latest
  --split SET          train, validation or test (default: test; train where --set names another
                       training set, or data without a test set)
  --format FORMAT      csv (default) or jsonl, one JSON object a line
  --output FILE        The new file; no file may have the name (default: stdout)
  --set data.key=value Sets a key of data, such as other files; may be repeated. The training set
                       is then whole: data.validation takes no part of it
  --help               Print this and end

A line has the sample's index, prediction and target; of a picture's file also its path in its
folder. Of classes the prediction is the one with the largest output, and score is that output.
Values have the unit of the file, whether or not they were normalized.

Other files are read as those that the model was trained on: by the same columns, means, deviations
and classes. They may lack targets: so may the pictures in data.root, and in folders below it, have
no folder for each class. Only files of the set that is asked for need to be there. The model runs
in this process, on all cores.
)";

using Overrides = std::vector<keys::Override>;

const std::string kData = "data.";

std::vector<std::string> names_of_sets(const DataRecord& record) {
  std::vector<std::string> names;
  for (const std::string& name : {kTrainSet, kValidationSet, kTestSet}) {
    if (record.sets.contains(name)) names.push_back(name);
  }
  return names;
}

std::shared_ptr<const Dataset> load_set(const OpenedCheckpoint& checkpoint,
                                        const std::string& name) {
  const DataSets sets = checkpoint.data(
      {.train = name == kTrainSet, .validation = name == kValidationSet, .test = name == kTestSet},
      /*needs_targets=*/false);
  return name == kTrainSet ? sets.train : name == kValidationSet ? sets.validation : sets.test;
}

// Whether --set names files of the training set alone, of a source where each set has its own:
// data.file beside data.test_file.
bool names_training_files(const OpenedCheckpoint& checkpoint, const Overrides& overrides) {
  const auto values = values_of(checkpoint.config);
  const auto is_any = [&](const auto& holds) { return std::ranges::any_of(overrides, holds); };
  return is_any([&](const keys::Override& set) {
           return values.contains(kData + "test_" + set.key.substr(kData.size()));
         }) &&
         !is_any([&](const keys::Override& set) { return set.key.starts_with(kData + "test_"); });
}

// The set that is meant if none is named: the training set, where --set names another one.
std::shared_ptr<const Dataset> default_set(const OpenedCheckpoint& checkpoint,
                                           const Overrides& overrides) {
  if (names_training_files(checkpoint, overrides)) {
    auto train = load_set(checkpoint, kTrainSet);
    const auto before = checkpoint.record.sets.find(kTrainSet);
    const bool is_other = before == checkpoint.record.sets.end() ||
                          before->second.fingerprint != train->fingerprint();
    if (is_other) return train;
  }
  auto test = load_set(checkpoint, kTestSet);
  return test || overrides.empty() ? test : load_set(checkpoint, kTrainSet);
}

PredictionFormat format_of(const std::string& name) {
  require(name == "csv" || name == "jsonl", "--format ", cut(name), ": must be csv or jsonl");
  return name == "csv" ? PredictionFormat::csv : PredictionFormat::jsonl;
}

void check_output(const std::string& output) {
  const auto folder = std::filesystem::path(output).parent_path();
  require(folder.empty() || std::filesystem::is_directory(folder), "--output ", output,
          ": there is no folder ", folder.string());
  std::error_code error;
  const auto status = std::filesystem::symlink_status(output, error);
  require(!std::filesystem::exists(status), output, " exists already: name another file");
}

}  // namespace

int run_predict(int argc, const char* const* argv) {
  const std::string program = "train predict";
  const auto arguments = parse_command_line(
      argc, argv,
      {program, {"--checkpoint", "--split", "--format", "--output", "--set"}, {"--help"}});
  if (value_of(arguments, "--help")) return print(kPredictHelp);
  const auto split = value_of(arguments, "--split");
  require(!split || *split == kTrainSet || *split == kValidationSet || *split == kTestSet,
          "--split ", cut(*split), ": must be train, validation or test");
  const auto format = format_of(value_of(arguments, "--format").value_or("csv"));
  const auto output = value_of(arguments, "--output");
  if (output) check_output(*output);
  const Overrides chosen = data_overrides(program, arguments);
  Overrides overrides = chosen;
  if (!overrides.empty() && split != kValidationSet) {
    overrides.insert(overrides.begin(), {"data.validation", "0", "train predict"});
  }
  OpenedCheckpoint checkpoint = open_checkpoint(program, arguments, overrides);
  const auto set = split ? load_set(checkpoint, *split) : default_set(checkpoint, chosen);
  require(set != nullptr, "--split ", split.value_or(kTestSet), ": the data set ",
          checkpoint.config.data.name, " has no ", split.value_or(kTestSet), " set; the run had ",
          join(names_of_sets(checkpoint.record)));
  check_predictable(*set);
  const auto model = checkpoint.model();
  const PredictionOptions options{.batch_size = checkpoint.config.data_use.batch_size,
                                  .format = format,
                                  .target_scales = checkpoint.record.fitted.target_scales};
  checkpoint.config.launch.threads_per_replica = 0;  // all cores are this replica's
  return run_alone(checkpoint.config, [&] {
    if (!output) {
      return write_predictions(*model, *set, options,
                               [](std::string_view text) { (void)print(std::string(text)); });
    }
    NewFile file(*output);
    write_predictions(*model, *set, options, [&](std::string_view text) { file.write(text); });
    require(file.publish(), *output, " exists already: name another file");
  });
}

}  // namespace lockstep
