#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "framework/base/text.h"
#include "framework/telemetry/trace_file.h"
#include "framework/telemetry/trace_summary.h"
#include "trainers/commands/command_line.h"
#include "trainers/run/run_trace.h"

namespace lockstep {
namespace {

constexpr const char* kTraceHelp =
    R"(A trace has what all replicas on all hosts did in some steps, on one clock: RUN/trace.json. Open it
on https://ui.perfetto.dev, which runs in the browser and sends it nowhere, or in chrome://tracing.
RUN must be going on, on this host: it is host 0's folder. telemetry.trace, as [100, 110], has a run
write a trace of these steps by itself.

Exit status: 0 done; 2 no run goes on there, or the file is no trace; 1 the run has ended, or the
timeout is over.
)";

}  // namespace

int run_trace(int argc, const char* const* argv) {
  std::string run;
  std::string summary;
  std::int64_t timeout = 300;
  const CommandLine line{
      .program = program_name("trace"),
      .usage = "RUN [--timeout S]\n  " + program_name("trace") + " --summary FILE",
      .what = "Has a run that goes on write a trace of its next ten steps, or says what one tells.",
      .flags = {{"--summary", "FILE",
                 "Print what a trace tells: who waited for whom, and what it costs (FILE: or the "
                 "run's folder)",
                 sets(summary)},
                {"--timeout", "S", "Seconds to wait for the trace (default: 300)",
                 sets(timeout, number_of<std::int64_t>("seconds"))}},
      .more = kTraceHelp,
      .operand = [&](const std::string& given) { run = given; }};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  require(run.empty() != summary.empty(),
          "either a run's folder is needed, or --summary FILE; see ", line.program, " --help");
  if (!summary.empty()) {
    std::filesystem::path file = summary;
    std::error_code missing;
    if (std::filesystem::is_directory(file, missing)) file /= kTraceFile;
    return print(trace_summary(read_trace(file)));
  }
  require_at_least(1, "--timeout", timeout);
  require(timeout <= 1'000'000, "--timeout is ", timeout, ", but must be at most 1000000");
  return print(request_trace(run, std::chrono::seconds(timeout)).string() + "\n");
}

}  // namespace lockstep
