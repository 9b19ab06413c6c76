#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/weights.h"
#include "framework/collectives/axis_index.h"
#include "framework/data/data.h"
#include "framework/replicas/launch.h"
#include "models/model.h"
#include "trainers/command_line.h"
#include "trainers/commands.h"
#include "trainers/config_options.h"
#include "trainers/evaluate.h"
#include "trainers/resume.h"

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
bit. Nothing is written.
)";

// Flags that stand for a key of `parallel`.
const std::vector<std::string> kParallelFlags{"--replicas", "--workers", "--launch"};

std::vector<keys::Override> overrides_of(const std::vector<Argument>& arguments) {
  std::vector<keys::Override> overrides;
  for (const auto& [flag, value] : arguments) {
    if (flag == "--set") {
      overrides.push_back(keys::parse_set(value));
      const std::string& key = overrides.back().key;
      require(key.starts_with("data.") || key.starts_with("parallel."), "--set ", cut(value, 200),
              ": train eval takes keys of data and parallel; the model is the checkpoint's");
    }
    for (const std::string& known : kParallelFlags) {
      if (flag != known) continue;
      overrides.push_back({"parallel." + flag.substr(2), value, str(flag, " ", cut(value, 200))});
    }
  }
  return overrides;
}

// In each replica.
void evaluate_checkpoint(const std::filesystem::path& checkpoint, std::int64_t steps,
                         const Config& config, const DataSets& data) {
  const auto model = make_whole_model(config, data);
  load_safetensors(checkpoint, *model, evaluated_values(config));
  const AxisNames axis = config.launch.axis_name;
  const Objective objective = make_objective(config, data.train->type());
  for (const auto& [name, set] : {std::pair("validation", data.validation), {"test", data.test}}) {
    if (!set) continue;
    const Figures figures = evaluate(*model, *set, objective, config.data_use.batch_size, axis);
    if (axis_index(axis) == 0) (void)print(evaluation_text(steps, name, figures) + "\n");
  }
}

}  // namespace

int run_eval(int argc, const char* const* argv) {
  FlagNames names{"train eval", {"--checkpoint", "--set"}, {"--quiet", "--help"}};
  names.with_value.insert(names.with_value.end(), kParallelFlags.begin(), kParallelFlags.end());
  const auto arguments = parse_command_line(argc, argv, names);
  if (value_of(arguments, "--help")) return print(kEvalHelp);
  const auto named = value_of(arguments, "--checkpoint");
  require(named.has_value(), "--checkpoint DIR is needed; see train eval --help");
  set_quiet(value_of(arguments, "--quiet").has_value());
  // `latest` may lead elsewhere before all replicas have read it.
  std::error_code error;
  const auto canonical = std::filesystem::canonical(*named, error);
  const std::filesystem::path checkpoint = error ? std::filesystem::path(*named) : canonical;
  const CheckpointInfo info = checkpoint_info(checkpoint);
  const Config config = config_of_checkpoint(checkpoint, info, overrides_of(arguments));
  verify_checkpoint(checkpoint);
  const DataSets data = load_data(config.data, data_context(config));
  require(data.test || data.validation, "the data set ", config.data.name,
          " has neither a test nor a validation set");
  return launch([&] { evaluate_checkpoint(checkpoint, info.step, config, data); }, config.launch);
}

}  // namespace lockstep
