#include <exception>
#include <optional>
#include <string>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/engines/local_tasks.h"
#include "framework/engines/whereabouts.h"
#include "framework/launch/launch.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"

namespace lockstep {

int run_hosts(int argc, const char* const* argv) {
  HostOptions given{
      .count = kNotGiven, .rank = kNotGiven, .meet_timeout = {}, .replicas = kNotGiven};
  std::optional<engines::Engine> engine;
  const CommandLine line{
      .program = program_name("hosts"),
      .usage = "[flags]",
      .what =
          "Prints which host of a job this is, as a run with these flags finds it here: each "
          "variable that\nit looks at, what it takes it for, and what follows. Start it as the run "
          "is started:\nsrun -N 2 --ntasks-per-node=1 train hosts",
      .flags = place_flags(given, engine)};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  const engines::Whereabouts where = whereabouts_of(given, engine);
  TextTable rows;
  for (const engines::ReadVariable& each : where.read) {
    rows.push_back({each.name, each.value ? cut(*each.value) : "not set", each.meaning});
  }
  std::string text = table_text(rows, "l");
  const auto refusal = thrown_by([&] { take_place(where, given); });
  if (!refusal) {
    text += (where.alone_because.empty() ? text_of(where) : where.alone_because) + "\n";
    if (where.local_tasks > 1) text += engines::text_of_task(where) + "\n";
  }
  const int status = print(text);
  if (refusal) std::rethrow_exception(refusal);
  return status;
}

}  // namespace lockstep
