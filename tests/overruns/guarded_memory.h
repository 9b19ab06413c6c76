#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace lockstep::testing {

/// A program with guarded_memory.cpp has an allocator of its own. While `on`, a large or aligned
/// block (LibTorch's tensors, oneDNN's scratch memory) ends at a page that nobody may touch, as it
/// begins behind one; what alignment leaves free at its ends is looked at when it is freed. Its
/// bytes are NaN at first, in float32, bfloat16 and float64. Freed addresses are never used again.
void guard_memory(bool on);

/// Runs `run` for each index below `count`, with guarded memory, in children that are forks: a new
/// one every hundred runs and after each finding. `run` returns what else it found wrong, or
/// nothing; a run of over 120 s is a finding. `report` is called here for each run that is over,
/// with what was found or with an empty text. Stops before the next run where it returns false.
///
/// Fork before this process has run anything in parallel: a fork has no threads of OpenMP's.
void run_guarded(std::size_t count, const std::function<std::string(std::size_t)>& run,
                 const std::function<bool(std::size_t, const std::string&)>& report);

}  // namespace lockstep::testing
