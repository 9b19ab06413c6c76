#include "trainers/bench/bench_main.h"

#include <exception>
#include <iostream>
#include <string>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/process.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/worker_process.h"
#include "trainers/bench/flags.h"
#include "trainers/bench/measuring/workplace.h"
#include "trainers/bench/session.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

int run(int argc, const char* const* argv) {
  prepare_process();
  const replicas::ChildrenToWaitFor their_ends_are_seen;
  if (argc > 1 && std::string(argv[1]) == "worker") return run_worker({argv + 2, argv + argc});
  const Options options = parse_flags(argc, argv);
  std::cout << options.text;
  for (const Benchmark& benchmark : benchmarks()) {
    if (!options.text.empty() || benchmark.name != options.measurement) continue;
    const Workplace workplace;
    check_plot(workplace, options);
    write_results(workplace, options, benchmark.run(workplace, options));
  }
  if (!std::cout.flush()) throw Error("stdout cannot be written");
  return 0;
}

}  // namespace

int bench_main(int argc, const char* const* argv) {
  try {
    return run(argc, argv);
  } catch (const Stopped& stopped) {
    log_error(stopped.what());
    return replicas::status_of_stop(stopped.signal());
  } catch (const std::exception& error) {
    log_error(replicas::text_of(error));
    return exit_status(error);
  }
}

}  // namespace lockstep::bench
