#pragma once

#include <string>

#include "framework/timeline/trace.h"

namespace lockstep {

/// What people want to know of a trace's whole steps, as lines: the time of a step by part and
/// replica, exposed and hidden communication, idle time and its cause, the replica that others
/// waited for, and how much faster the run would be had it not been slow. That is said by the rule
/// of timeline::slow_replica(): of small differences nothing is said. Pure.
[[nodiscard]] std::string trace_summary(const timeline::Trace& trace);

}  // namespace lockstep
