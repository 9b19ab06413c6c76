#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/keys/choice.h"
#include "framework/objectives/metric.h"
#include "trainers/commands/command_line.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace {

// What there is of each kind, by the name of its list: names, each with its help.
std::vector<std::pair<std::string, TextTable>> lists() {
  const std::map<std::string, std::string> names{{"model", "models"},
                                                 {"data", "datasets"},
                                                 {"loss", "losses"},
                                                 {"optimizer", "optimizers"},
                                                 {"schedule", "schedules"}};
  std::vector<std::pair<std::string, TextTable>> all;
  Config defaults;
  for (const keys::Section& section : config_table(defaults)) {
    if (section.choices.empty()) continue;
    TextTable& rows = all.emplace_back(names.at(section.name), TextTable()).second;
    for (const auto& [choice, help] : section.choices) rows.push_back({choice, help});
  }
  TextTable& metrics = all.emplace_back("metrics", TextTable()).second;
  for (const keys::Choice& metric : metric_registry().choices()) {
    metrics.push_back({metric.name, metric.help});
  }
  return all;
}

std::string list_text(const std::optional<std::string>& name) {
  std::vector<std::string> names;
  TextTable lines;
  for (const auto& [list, rows] : lists()) {
    if (list == name) return table_text(rows, "l");
    names.push_back(list);
    lines.push_back({list, join(mapped(rows, [](const auto& row) { return row[0]; }))});
  }
  if (!name) return table_text(lines, "l");
  throw ValueError(str("there is no list '", cut(*name), "'", did_you_mean(*name, names),
                       "; there are ", join(names)));
}

// A command whose one argument may be a name; `text` is printed for it, or for none.
int run_on_name(int argc, const char* const* argv, CommandLine line,
                std::string (*text)(const std::optional<std::string>& name)) {
  std::optional<std::string> name;
  line.operand = [&](const std::string& given) { name = given; };
  return print(parse_command_line(argc, argv, line) ? text(name) : help_text(line));
}

}  // namespace

int run_list(int argc, const char* const* argv) {
  const auto names = mapped(lists(), [](const auto& list) { return list.first; });
  return run_on_name(
      argc, argv,
      {.program = program_name("list"),
       .usage = str("[", join(names, "|"), "]"),
       .what = "Prints the models that there are, the data sets, …, each with what it is; without "
               "a name\nall lists.",
       .more = program_name("keys") + " NAME prints the keys of one in a config.\n"},
      list_text);
}

int run_keys(int argc, const char* const* argv) {
  return run_on_name(
      argc, argv,
      {.program = program_name("keys"),
       .usage = "[NAME]",
       .what = "Prints the keys of a config: what each is for, what may stand there and its "
               "default.",
       .more =
           "NAME is a section, or a model, data set, loss, optimizer or schedule: only the keys "
           "that a config\nwith it may have in its section are printed; or it is a key, such as "
           "lr. Without a name all keys.\n"},
      config_help);
}

}  // namespace lockstep
