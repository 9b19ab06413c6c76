#pragma once

#include <cstdint>
#include <functional>

#include "framework/maps/first_failure.h"

namespace lockstep::maps {

/// Runs `body` with each index from 0 to `count` - 1, each in a thread of its own (see
/// add_threads()), and returns when all have ended. `failure` records each error of a body. The
/// threads, and LibTorch's math threads with them, stay for the next call by the same thread, and
/// end with that thread. A forked child has threads of its own.
///
/// LibTorch numbers the nodes of a graph thread by thread, and runs a backward in the order of
/// these numbers, the highest first. All bodies start at `first_node`, and the caller goes on after
/// their highest number. So nodes made before the call, in it and after it are numbered in this
/// order, alike on all replicas, and a backward calls collectives in the same order everywhere.
void run_in_kept_threads(std::int64_t count, std::uint64_t first_node, FirstFailure& failure,
                         const std::function<void(std::int64_t)>& body);

/// Returns the number of the next node that this thread makes.
[[nodiscard]] std::uint64_t next_node();

/// Makes `node` the number of this thread's next node, unless that number is higher already.
void advance_nodes(std::uint64_t node);

void end_kept_threads();

}  // namespace lockstep::maps
