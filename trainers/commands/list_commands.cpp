#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/keys/choice.h"
#include "framework/objectives/metric.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/commands.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace {

// A command that lists names, and the section of a config in which they are picked.
struct List {
  const char* command;
  const char* section;
};

constexpr List kLists[] = {{"models", "model"},
                           {"datasets", "data"},
                           {"losses", "loss"},
                           {"optimizers", "optimizer"},
                           {"schedules", "schedule"}};
constexpr const char* kMetrics = "metrics";

constexpr const char* kConfigHelp =
    R"(Prints the keys of a config: what each is for, what may stand there and its default.

Usage:
  train config [NAME]

  NAME    A model, data set, loss, optimizer or schedule: only the keys that a config with it may
          have in its section; without a name all keys
  --help  Print this and end
)";

std::string list_help(const std::string& command) {
  return str(
      "Prints the ", command, " that there are.\n\nUsage:\n  train ", command,
      " [--help]\n\n  --help  Print this and end\n",
      command == kMetrics ? "" : "\ntrain config NAME prints the keys of one in a config.\n");
}

// Each with its help.
std::vector<std::pair<std::string, std::string>> names_of(const std::string& command) {
  std::vector<std::pair<std::string, std::string>> names;
  if (command == kMetrics) {
    for (const keys::Choice& metric : metric_registry().choices()) {
      names.emplace_back(metric.name, metric.help);
    }
    return names;
  }
  for (const List& list : kLists) {
    if (list.command != command) continue;
    for (const SectionChoices& choices : config_choices()) {
      if (choices.section == list.section) names = choices.choices;
    }
  }
  return names;
}

}  // namespace

int run_list(int argc, const char* const* argv) {
  const std::string command = argv[0];
  const auto arguments = parse_command_line(argc, argv, {"train " + command, {}, {"--help"}});
  if (value_of(arguments, "--help")) return print(list_help(command));
  const auto names = names_of(command);
  std::size_t width = 0;
  for (const auto& [name, help] : names) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, help] : names) {
    text += name;
    if (!help.empty()) text += std::string(width - name.size() + 2, ' ') + help;
    text += "\n";
  }
  return print(text);
}

int run_config(int argc, const char* const* argv) {
  const auto arguments = parse_command_line(argc, argv, {"train config", {}, {"--help"}, 1});
  if (value_of(arguments, "--help")) return print(kConfigHelp);
  return print(config_help(value_of(arguments, "")));
}

}  // namespace lockstep
