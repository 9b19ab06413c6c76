#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "framework/launch/launch.h"

namespace lockstep {

/// In a run's folder: its last trace, and the file that asks for one while the run goes on.
inline constexpr const char* kTraceFile = "trace.json";
inline constexpr const char* kTraceRequest = "trace.request";

/// How many steps such a request is for.
inline constexpr std::int64_t kRequestedSteps = 10;

/// Traces of a run whose folder `output` is, by then: of the steps `steps`, the first and the last
/// one (none: empty), and of the next kRequestedSteps while there is a request, which is removed
/// once the trace is there. `output` must live as long.
[[nodiscard]] TraceOptions trace_options(const std::filesystem::path& output,
                                         const std::vector<std::int64_t>& steps);

/// The run is over, with this status: whoever still waits for a trace hears that there is none. If
/// it has ended well without these steps, a warning says so.
void end_traces(const std::filesystem::path& output, const std::vector<std::int64_t>& steps,
                int status);

/// Asks the run in this folder for a trace of its next steps, and waits for the file, which is
/// returned. ValueError if no run goes on there or another trace is asked for, Error if the run
/// ends before the next step, or the timeout is over.
[[nodiscard]] std::filesystem::path request_trace(const std::filesystem::path& run,
                                                  std::chrono::milliseconds timeout);

}  // namespace lockstep
