#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainers/bench/statistics.h"
#include "trainers/bench/workers.h"

namespace lockstep::bench {

/// What one system took for one case.
struct Measurement {
  std::string label;            ///< the system's
  std::vector<double> samples;  ///< seconds a call, in the order measured
  Quartiles seconds;            ///< of these
  std::int64_t calls = 0;       ///< in a sample
  std::string note;             ///< what a reader should know of how it was done; mostly ""
};

/// Measures an operation on all systems, in the order given, interleaved: each repetition runs one
/// batch of every system in turn, beginning with another one each time, so that whatever else
/// happens on the machine meets all alike. A batch has as many calls as take about 3 ms, at least
/// one; its time divided by them is a sample. Each system's result is checked and a batch run
/// before that. `repetitions` 0: until 2 seconds have passed, from 5 to 25.
[[nodiscard]] std::vector<Measurement> measure(const Crew& systems, const std::string& operation,
                                               std::int64_t bytes, std::int64_t repetitions);

}  // namespace lockstep::bench
