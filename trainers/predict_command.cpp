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
  --split SET          train, validation or test (default: test; where --set names another
                       training set and the test set is the run's: train)
  --format FORMAT      csv (default) or jsonl, one JSON object a line
  --output FILE        The new file; no file may have the name (default: stdout)
  --set data.key=value Sets a key of data, such as other files; may be repeated. The training set
                       is then whole: data.validation takes no part of it
  --help               Print this and end

A line has the sample's index, prediction and target. Of classes the prediction is the one with the
largest output, and score is that output. Values have the unit of the file, whether or not they were
normalized. Other files are read as those that the model was trained on: by the same columns, means,
deviations and classes. They may lack targets. The model runs in this process, on all cores.
)";

std::shared_ptr<const Dataset> set_of(const OpenedCheckpoint& checkpoint,
                                      const std::string& split) {
  const DataSets& data = checkpoint.data;
  std::vector<std::string> names;
  std::shared_ptr<const Dataset> chosen;
  for (const auto& [name, set] : named_sets(data)) {
    names.push_back(name);
    if (split == name) chosen = set;
  }
  require(chosen != nullptr, "--split ", cut(split), ": the data set ", checkpoint.config.data.name,
          " has ", join(names, " and "));
  return chosen;
}

// The set that is meant if none is named.
std::string default_split(const OpenedCheckpoint& checkpoint) {
  const SetRecords now = records_of(checkpoint.data);
  const auto changed = [&](const std::string& name) {
    const auto before = checkpoint.record.sets.find(name);
    const auto found = now.find(name);
    return found != now.end() && (before == checkpoint.record.sets.end() ||
                                  before->second.fingerprint != found->second.fingerprint);
  };
  return changed(kTrainSet) && !changed(kTestSet) ? kTrainSet : kTestSet;
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
  const auto format = format_of(value_of(arguments, "--format").value_or("csv"));
  const auto output = value_of(arguments, "--output");
  if (output) check_output(*output);
  auto overrides = data_overrides(program, arguments);
  if (!overrides.empty() && split != kValidationSet) {
    overrides.insert(overrides.begin(), {"data.validation", "0", "train predict"});
  }
  OpenedCheckpoint checkpoint =
      open_checkpoint(program, arguments, overrides, {.needs_targets = false});
  const auto set = set_of(checkpoint, split               ? *split
                                      : overrides.empty() ? kTestSet
                                                          : default_split(checkpoint));
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
