#include <optional>
#include <string>

#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/engines/local_tasks.h"
#include "framework/engines/stop_grace.h"
#include "framework/engines/whereabouts.h"
#include "framework/replicas/launch.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"

namespace lockstep {

int run_hosts(int argc, const char* const* argv) {
  HostOptions given{.count = kNotGiven, .rank = kNotGiven};
  std::optional<engines::Engine> engine;
  const CommandLine line{
      .program = program_name("hosts"),
      .usage = "[flags]",
      .what =
          "Prints which host of a job this is, as a run with these flags finds it here: each "
          "variable that\nit looks at, what it takes it for, and what follows.",
      .flags = place_flags(given, engine)};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  const engines::Whereabouts where = whereabouts_of(given, engine);
  TextTable rows;
  for (const engines::ReadVariable& each : where.read) {
    rows.push_back({each.name, each.value ? cut(*each.value) : "not set", each.meaning});
  }
  const bool is_alone = !where.alone_because.empty();
  std::string text = table_text(rows, "l");
  if (where.refusal.empty()) text += (is_alone ? where.alone_because : text_of(where)) + "\n";
  if (where.refusal.empty() && where.grace) text += grace_text(*where.grace, std::nullopt) + "\n";
  (void)print(text);
  require(where.refusal.empty(), where.refusal);
  engines::require_known_tasks(where, program_name());
  return where.local_tasks == 1 ? 0 : print(engines::text_of_task(where) + "\n");
}

}  // namespace lockstep
