#include "trainers/bench/session.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iostream>

#include <fcntl.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/process.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/worker_process.h"
#include "framework/storage/file.h"
#include "trainers/bench/measuring/machine.h"
#include "trainers/bench/reports/text.h"
#include "trainers/bench/systems/own.h"
#include "trainers/bench/testing/temporary_folder.h"

namespace lockstep::bench {
namespace {

ProgramEnd run_plot(const Workplace& workplace, const std::string& python,
                    const std::vector<std::string>& arguments) {
  Program program{.arguments = {python, file_of_bench("plot.py", "share/lockstep/plot.py")}};
  program.arguments.insert(program.arguments.end(), arguments.begin(), arguments.end());
  return workplace.run(program);
}

// The first interpreter that can draw for --plot, looked for before anything is measured. The
// python3 of a user's own often lacks what the machine's has.
std::string find_plotter(const Workplace& workplace, const Options& options) {
  std::vector<std::string> pythons = options.pythons;
  for (const std::string python : {"python3", "/usr/bin/python3"}) {
    if (std::ranges::count(pythons, python) == 0) pythons.push_back(python);
  }
  std::vector<std::string> tried;
  for (const std::string& python : pythons) {
    const ProgramEnd end = run_plot(workplace, python, {"--version"});
    if (end.status == 0) return python;
    tried.push_back(str(python, ": ", end.last_line()));
  }
  throw ValueError(str("--plot needs a Python that has matplotlib (Debian: python3-matplotlib); ",
                       "tried ", join(tried, "; ")));
}

// As a picture in the file of --plot.
void draw(const Workplace& workplace, const Options& options, const std::string& plotter,
          const std::string& json) {
  const std::filesystem::path table = workplace.folder() / "table.json";
  testing::write_text(table, json);
  const ProgramEnd end =
      run_plot(workplace, plotter, {table, std::filesystem::absolute(options.plot)});
  if (end.status != 0) throw Error(str("--plot: ", end.last_line()));
}

int run(int argc, const char* const* argv) {
  prepare_process();
  const replicas::ChildrenToWaitFor their_ends_are_seen;
  if (argc > 1 && std::string(argv[1]) == "worker") return run_worker({argv + 2, argv + argc});
  const Options options = parse_flags(argc, argv);
  if (!options.text.empty()) return print(options.text);
  const auto benchmark = std::ranges::find(benchmarks(), options.measurement, &Benchmark::name);
  const Workplace workplace;
  const std::string plotter = options.plot.empty() ? "" : find_plotter(workplace, options);
  const std::string json = benchmark->run(workplace, options);
  if (!options.json.empty()) File(options.json, O_CREAT | O_WRONLY | O_TRUNC).write(json);
  if (!options.plot.empty()) draw(workplace, options, plotter, json);
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
    require(std::ranges::count(names, name) > 0, "--systems: unknown system '", name, "'",
            did_you_mean(name, names), "; there are ", join(names));
  }
  const auto& wanted = options.systems.empty() ? names : options.systems;
  Contestants found;
  found.systems = filtered(
      own, [&](const System& system) { return std::ranges::count(wanted, system.facts.name) > 0; });
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

Heading begin_report(const std::vector<System>& systems, const std::vector<LeftOut>& left_out) {
  const Heading heading{
      .machine = machine_facts(), .systems = mapped(systems, &System::facts), .left_out = left_out};
  std::cout << heading_text(heading) << std::endl;
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
