// The measurements: what Lockstep's operations take, beside others' and beside what the machine can
// do.

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/process.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/worker_process.h"
#include "trainers/bench/collectives.h"
#include "trainers/bench/flags.h"
#include "trainers/bench/own_systems.h"
#include "trainers/bench/training.h"
#include "trainers/bench/training_systems.h"
#include "trainers/bench/vdot.h"
#include "trainers/bench/workplace.h"

namespace lockstep::bench {
namespace {

// What the driver starts: a system, until the driver hangs up.
int run_worker(const std::vector<std::string>& arguments) {
  const std::string kind = arguments.empty() ? "" : arguments[0];
  if (kind != "vdot" && kind != "training") return run_own_worker(arguments);
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (kind == "training") return run_training_worker(rest);
  run_vdot_worker(rest);
  return 0;
}

int bench(int argc, char** argv) {
  prepare_process();
  const ChildrenToWaitFor their_ends_are_seen;
  if (argc > 1 && std::string(argv[1]) == "worker") return run_worker({argv + 2, argv + argc});
  const Flags flags = parse_flags(argc, argv);
  if (flags.collectives) run_collectives(*flags.collectives);
  if (flags.vdot) run_vdot(*flags.vdot);
  if (flags.training) run_training(*flags.training);
  if (flags.text) std::cout << *flags.text;
  if (!std::cout.flush()) throw Error("stdout cannot be written");
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    return lockstep::bench::bench(argc, argv);
  } catch (const lockstep::bench::Stopped& stopped) {
    lockstep::log_error(stopped.what());
    return 128 + stopped.signal();
  } catch (const std::exception& error) {
    lockstep::log_error(lockstep::text_of(error));
    return lockstep::exit_status(error);
  }
}
