#include "trainers/bench/session.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iostream>

#include <fcntl.h>
#include <sys/wait.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/process.h"
#include "framework/base/text.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/worker_process.h"
#include "framework/storage/file.h"
#include "trainers/bench/measuring/machine.h"
#include "trainers/bench/systems/own.h"
#include "trainers/bench/testing/child_program.h"
#include "trainers/bench/testing/temporary_folder.h"

namespace lockstep::bench {
namespace {

// Runs plot.py, with the first Python that is found.
ProgramEnd run_plot(const Workplace& workplace, const std::vector<std::string>& arguments) {
  Program program{.arguments = {"python3", file_of_bench("plot.py", "share/lockstep/plot.py")}};
  program.arguments.insert(program.arguments.end(), arguments.begin(), arguments.end());
  ProgramEnd end = workplace.run(program);
  if (WIFEXITED(end.status) && WEXITSTATUS(end.status) == testing::kNotRun)
    end.output = end.last_line() + " (Debian: python3-matplotlib)";
  return end;
}

// Before anything is measured.
void check_plot(const Workplace& workplace, const Options& options) {
  if (options.plot.empty()) return;
  const ProgramEnd end = run_plot(workplace, {"--version"});
  if (end.status != 0) throw ValueError(str("--plot: ", end.last_line()));
}

// To the file of --json, and as a picture in that of --plot.
void write_results(const Workplace& workplace, const Options& options, const std::string& json) {
  if (!options.json.empty()) File(options.json, O_CREAT | O_WRONLY | O_TRUNC).write(json);
  if (options.plot.empty()) return;
  const std::filesystem::path table = workplace.folder() / "table.json";
  testing::write_text(table, json);
  const ProgramEnd end = run_plot(workplace, {table, std::filesystem::absolute(options.plot)});
  if (end.status != 0) throw Error(str("--plot: ", end.last_line()));
}

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

Contestants find_contestants(const Workplace& workplace, const Options& options,
                             const std::vector<System>& own,
                             const std::vector<std::string>& peers) {
  std::vector<std::string> names;
  for (const System& system : own) {
    if (std::ranges::count(names, system.facts.name) == 0) names.push_back(system.facts.name);
  }
  names.insert(names.end(), peers.begin(), peers.end());
  for (const std::string& name : options.systems) {
    if (std::ranges::count(names, name) > 0) continue;
    throw ValueError(str("--systems: unknown system '", name, "'", did_you_mean(name, names),
                         "; there are ", join(names)));
  }
  const auto& wanted = options.systems.empty() ? names : options.systems;
  Contestants found;
  for (const System& system : own) {
    if (std::ranges::count(wanted, system.facts.name) > 0) found.systems.push_back(system);
  }
  for (const std::string& name : peers) {
    if (std::ranges::count(wanted, name) == 0) continue;
    const std::size_t before = found.systems.size();
    add_peer(workplace, name, options.pythons, found);
    if (found.systems.size() == before && !options.systems.empty()) {
      throw ValueError(
          str("--systems: ", name, " cannot be measured here: ", found.left_out.back().reason));
    }
  }
  return found;
}

Heading heading_of(const std::vector<System>& systems, const std::vector<LeftOut>& left_out) {
  Heading heading{.machine = machine_facts(), .systems = {}, .left_out = left_out};
  for (const System& system : systems) heading.systems.push_back(system.facts);
  return heading;
}

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
