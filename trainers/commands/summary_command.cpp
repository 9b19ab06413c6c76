#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/data/data.h"
#include "framework/launch/launch.h"
#include "trainers/commands/flags.h"
#include "trainers/commands/model_summary.h"
#include "trainers/commands/shown_data.h"
#include "trainers/config/config.h"
#include "trainers/config/config_options.h"
#include "trainers/run/memory_report.h"
#include "trainers/run/sample_place.h"

namespace lockstep {
int run_summary(int argc, const char* const* argv) {
  const auto read = config_of(
      argc, argv,
      {.program = program_name("summary"),
       .what = "Prints what the data are, a model's layers, parameters and FLOPs, and its "
               "training's memory.",
       .more = "The model runs once, on the first sample of the training set. Nothing is trained "
               "or written.\n"});
  if (!read) return 0;
  const Config& config = *read;
  const DataSets data = load_shown(config.data, data_context(config));
  const auto model = make_whole_model(config, data.train->type());
  const at::Tensor inputs = made_batch({*data.train, {0}, "training"}).inputs;
  set_quiet(true);
  return launch(
      [&] {
        (void)print(join(data_lines(config, data), "\n") + "\n\n" +
                    summary_text(summarize(*model, inputs), inputs) + "\n" +
                    prediction_text(config, data));
      },
      alone(config).launch);
}

}  // namespace lockstep
