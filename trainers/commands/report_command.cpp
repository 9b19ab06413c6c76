#include <filesystem>
#include <optional>
#include <string>

#include "framework/base/text.h"
#include "framework/telemetry/run_folder.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/report/report.h"

namespace lockstep {
namespace {

constexpr const char* kReportHelp =
    R"(RUN is a run's folder, such as runs/a, also of one that goes on. The page is one file, which any
browser shows: curves, what happened on the way, memory beside its prediction, figures, versions and
config. It needs nothing from elsewhere and can be sent to others.
)";

}  // namespace

int run_report(int argc, const char* const* argv) {
  std::optional<std::filesystem::path> run, file;
  const CommandLine line{
      .program = program_name("report"),
      .usage = "RUN [--output FILE]",
      .what = "Writes what a run has done as a page for browsers.",
      .flags = {{"--output", "FILE",
                 "The page, in place of one that is there (default: report.html in the run's "
                 "folder)",
                 sets(file)}},
      .more = kReportHelp,
      .operand = [&](const std::string& given) { run = given; }};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  require(run.has_value(), "a run's folder is needed; see ", line.program, " --help");
  if (file) {
    check_folder_of("--output", *file);
  } else {
    file = *run / kReportFile;
  }
  report::write_report(*run, *file);
  return print(file->string() + "\n");
}

}  // namespace lockstep
