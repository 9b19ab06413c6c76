// The trainer: reads a config, starts the replicas and trains.

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/data/data.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/launch.h"
#include "trainers/check_job.h"
#include "trainers/config.h"
#include "trainers/flags.h"
#include "trainers/memory_report.h"
#include "trainers/run.h"

namespace lockstep {
namespace {

int print(const std::string& text) {
  std::cout << text;
  if (!std::cout.flush()) throw Error("stdout cannot be written");
  return 0;
}

int train(int argc, char** argv) {
  const Flags flags = parse_flags(argc, argv);
  if (flags.text) return print(*flags.text);
  const Config config = load_config(flags.config, flags.overrides);
  if (flags.print_config) return print(to_yaml(config));
  set_quiet(flags.quiet);
  // Read before the replicas start: they share the memory, and a bad file is one error, not N.
  const DataSets data = load_data(config.data, config.launch.replicas);
  check_job(config, data);
  if (flags.dry_run) return print(dry_run_text(config, data));
  check_memory(config, data);
  const RunOptions options{
      .output = flags.output, .name = flags.config.stem(), .quiet = flags.quiet};
  return launch([&] { run_training(config, data, options); }, config.launch);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    return lockstep::train(argc, argv);
  } catch (const std::exception& error) {
    lockstep::log_error(lockstep::replicas::text_of(error));
    return lockstep::exit_status(error);
  }
}
