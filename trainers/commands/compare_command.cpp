#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/storage/file.h"
#include "framework/telemetry/progress.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/report/comparison.h"

namespace lockstep {
namespace {

constexpr const char* kCompareHelp =
    R"(RUN is a run's folder, such as runs/a. The table has the keys of the configs that differ, and what
the runs came to: figures as they were last measured, with the step where that is not the run's last
one, in brackets at their best, and the mean of samples/s in the time of steps; * marks the best of
a row. The last line says whether configs, figures at each step that runs share, and parameters are
the same. What else differs beside equal configs (BLAS, workers, …, how often a run has gone on)
stands there, too.
)";

}  // namespace

int run_compare(int argc, const char* const* argv) {
  std::string format = "text";
  std::vector<std::filesystem::path> runs;
  std::optional<std::filesystem::path> page;
  const CommandLine line{.program = program_name("compare"),
                         .usage = "RUN RUN... [flags]",
                         .what =
                             "Compares runs: what differs in their configs, and what they came "
                             "to.",
                         .flags = {{"--to", "FILE.html",
                                    "Write a page for browsers, too, with the runs' curves over "
                                    "each other; in place of one that is there",
                                    sets(page)},
                                   table_format_flag(format)},
                         .more = kCompareHelp,
                         .operand = [&](const std::string& run) { runs.emplace_back(run); },
                         .has_many = true};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  require(runs.size() >= 2, "the folders of two runs or more are needed; see ", line.program,
          " --help");
  if (page) check_folder_of("--to", *page);
  const report::Comparison comparison = report::compare(runs);
  if (page) {
    write_file_atomically(*page, report::page_text(report::comparison_page(comparison)));
  }
  if (format == "csv") return print(report::runs_csv(comparison.runs, comparison.differing));
  if (format == "json") return print(report::json_line(report::comparison_json(comparison)));
  return print(report::comparison_text(comparison, terminal_columns(stdout)));
}

}  // namespace lockstep
