#include "trainers/run/run_trace.h"

#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/maps/machine.h"
#include "framework/storage/file.h"
#include "framework/telemetry/run_folder.h"
#include "framework/telemetry/trace_file.h"
#include "framework/timeline/trace.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

// When the file was written; none while it is not there.
std::optional<fs::file_time_type> written_at(const fs::path& file) {
  std::error_code missing;
  const auto time = fs::last_write_time(file, missing);
  return missing ? std::nullopt : std::optional(time);
}

void drop_request(const fs::path& output) {
  std::error_code missing;
  fs::remove(output / kTraceRequest, missing);
}

}  // namespace

TraceOptions trace_options(const fs::path& output, const std::vector<std::int64_t>& steps) {
  const auto is_written = std::make_shared<bool>(steps.empty());  // the trace of `steps`
  TraceOptions options;
  options.wanted = [&output, steps, is_written]() -> std::optional<timeline::TracedSteps> {
    std::error_code missing;
    if (fs::exists(output / kTraceRequest, missing)) return {{0, kRequestedSteps}};
    if (*is_written) return std::nullopt;
    return {{steps.front(), steps.back() - steps.front() + 1}};
  };
  options.take = [&output, steps, is_written](const timeline::Trace& trace) {
    if (!*is_written && trace.first == steps.front() && trace.last == steps.back())
      *is_written = true;
    timeline::Trace whole = trace;
    whole.versions = {{"lockstep", LOCKSTEP_VERSION}, {"libtorch", maps::libtorch_version()}};
    write_file_atomically(output / kTraceFile, trace_json(whole));
    drop_request(output);
  };
  return options;
}

void end_traces(const fs::path& output, const std::vector<std::int64_t>& steps, int status) {
  drop_request(output);
  if (status == 0 && !steps.empty() && !written_at(output / kTraceFile)) {
    log_warning(str("telemetry.trace is [", join(steps), "], and the run has done none of these ",
                    "steps: there is no ", kTraceFile));
  }
}

fs::path request_trace(const fs::path& run, std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLook{50};
  require(holds_run(run), run.string(), " holds no run: name the folder of one that goes on");
  require(
      run_goes_on_in(run), "the run in ", run.string(),
      " is not going on: telemetry.trace, as [100, 110], lets a run write a trace of its steps");
  const fs::path file = run / kTraceFile;
  const fs::path request = run / kTraceRequest;
  const auto before = written_at(file);
  require(write_new_file(request, ""), "a trace of the run in ", run.string(),
          " is asked for already: remove ", request.string(), " if nobody waits for it any more");
  std::error_code missing;
  const auto begin = Clock::now();
  bool goes_on = true;
  for (auto looked = begin;; std::this_thread::sleep_for(kLook)) {
    if (!fs::exists(request, missing)) {
      const auto now = written_at(file);
      require<Error>(now && now != before, "the run in ", run.string(),
                     " has ended before its next step: there is no trace");
      return file;
    }
    if (!goes_on || Clock::now() - begin > timeout) break;
    if (Clock::now() - looked < std::chrono::seconds(1)) continue;
    looked = Clock::now();
    goes_on = run_goes_on_in(run);  // and one look more: it may just have written it
  }
  fs::remove(request, missing);
  require<Error>(goes_on, "the run in ", run.string(), " has ended without a trace");
  throw Error(str("the run in ", run.string(), " has not done ", kRequestedSteps, " steps in ",
                  std::chrono::ceil<std::chrono::seconds>(timeout).count(),
                  " s: --timeout may be longer"));
}

}  // namespace lockstep
