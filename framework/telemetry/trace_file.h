#pragma once

#include <filesystem>
#include <string>

#include "framework/timeline/trace.h"

namespace lockstep {

/// A trace in Chrome's Trace Event Format (JSON), which Perfetto (ui.perfetto.dev) and
/// chrome://tracing open. Its times begin with its first event.
///
/// A host is a process, and each track of its replicas a thread of it. A span is a complete event
/// ("X") of the category name_of(kind), or one that only begins ("B") if it has not ended. An arrow
/// leads from where the first replica comes to a call to where the last one does. Counters tell the
/// bytes that a replica moves and the memory of the workers. "otherData" has the steps, versions,
/// and of each host its clock's offset and how far that may be off.
[[nodiscard]] std::string trace_json(const timeline::Trace& trace);

/// What trace_json() has written to a file, without counters and spans' numbers. DataError, naming
/// the file, where it is something else: anybody may have made it.
[[nodiscard]] timeline::Trace read_trace(const std::filesystem::path& path);

}  // namespace lockstep
