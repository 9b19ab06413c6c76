#include "trainers/bench/session.h"

#include <algorithm>
#include <cstddef>

#include <fcntl.h>
#include <sys/wait.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/storage/file.h"
#include "trainers/bench/measuring/machine.h"
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

void check_plot(const Workplace& workplace, const Options& options) {
  if (options.plot.empty()) return;
  const ProgramEnd end = run_plot(workplace, {"--version"});
  if (end.status != 0) throw ValueError(str("--plot: ", end.last_line()));
}

void write_results(const Workplace& workplace, const Options& options, const std::string& json) {
  if (!options.json.empty()) File(options.json, O_CREAT | O_WRONLY | O_TRUNC).write(json);
  if (options.plot.empty()) return;
  const std::filesystem::path table = workplace.folder() / "table.json";
  testing::write_text(table, json);
  const ProgramEnd end = run_plot(workplace, {table, std::filesystem::absolute(options.plot)});
  if (end.status != 0) throw Error(str("--plot: ", end.last_line()));
}

}  // namespace lockstep::bench
