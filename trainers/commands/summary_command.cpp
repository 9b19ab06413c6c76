#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/data.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/commands.h"
#include "trainers/commands/model_summary.h"
#include "trainers/commands/shown_search.h"
#include "trainers/config/config.h"
#include "trainers/config/config_options.h"
#include "trainers/run/data_lines.h"
#include "trainers/run/memory_report.h"
#include "trainers/run/run_alone.h"

namespace lockstep {
namespace {

constexpr const char* kSummaryHelp =
    R"(Prints what the data are, a model's layers, parameters and FLOPs, and its training's memory.

Usage:
  train summary --config FILE [--set dotted.key=value]...

  --config FILE           The config
  --set dotted.key=value  Sets a key of the config; may be repeated
  --help                  Print this and end

The model runs once, on the first sample of the training set. Nothing is trained or written.
)";

}  // namespace

int run_summary(int argc, const char* const* argv) {
  const auto arguments =
      parse_command_line(argc, argv, {"train summary", {"--config", "--set"}, {"--help"}});
  if (value_of(arguments, "--help")) return print(kSummaryHelp);
  const auto file = value_of(arguments, "--config");
  require(file.has_value(), "--config FILE is needed; see train summary --help");
  std::vector<keys::Override> overrides;
  for (const auto& [flag, value] : arguments) {
    if (flag == "--set") overrides.push_back(keys::parse_set(value));
  }
  const Config config = load_config(*file, overrides);
  const DataSets data = load_shown(config.data, data_context(config));
  const auto model = make_whole_model(config, data.train->type());
  constexpr std::array<std::int64_t, 1> kFirst{0};
  const at::Tensor inputs = data.train->batch(kFirst).inputs;
  return run_alone(config, [&] {
    (void)print(join(data_lines(config, data), "\n") + "\n\n" +
                summary_text(summarize(*model, inputs), inputs) + "\n" +
                prediction_text(config, data));
  });
}

}  // namespace lockstep
