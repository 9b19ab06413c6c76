#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/record.h"
#include "framework/timeline/slow_link.h"
#include "framework/timeline/step_times.h"

namespace lockstep::timeline {

/// The steps of a wanted trace.
struct TracedSteps {
  std::int64_t first = 0;  ///< 0: the next one
  std::int64_t count = 0;
  bool operator==(const TracedSteps&) const = default;
};

/// A record of all replicas of a job in some of its steps, put together from the rings of all
/// hosts. All times are of one clock, that of host 0's recorder, in nanoseconds.
struct Trace {
  /// The memory of a worker's process at one time.
  struct Memory {
    std::int32_t worker = 0;
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;
    LOCKSTEP_FIELDS(worker, at, bytes)
  };
  struct Host {
    std::string name{};
    std::int64_t offset = 0;  ///< added to the times of its clock …
    std::uint64_t error = 0;  ///< … and off by so much at most
    bool is_cut = false;      ///< true when it had more spans than a trace has
    std::vector<ReplicaRecording> replicas{};
    std::vector<Memory> memory{};
    LOCKSTEP_FIELDS(name, offset, error, is_cut, replicas, memory)
  };

  std::int64_t first = 0;                         ///< step …
  std::int64_t last = 0;                          ///< … to step, both included
  std::map<std::string, std::string> versions{};  ///< by name: "lockstep", "libtorch"
  std::vector<Host> hosts{};                      ///< by number

  /// Returns the times of the replicas of all hosts in these steps.
  [[nodiscard]] StepTimes step_times() const {
    std::vector<ReplicaRecording> all;
    for (const Host& host : hosts) {
      all.insert(all.end(), host.replicas.begin(), host.replicas.end());
    }
    return timeline::step_times(all, first, last);
  }
  /// Returns the rates of the transfers to all hosts.
  [[nodiscard]] LinkRates link_rates() const {
    LinkRates rates;
    for (std::size_t host = 0; host < hosts.size(); ++host) {
      add_rates(hosts[host].replicas, static_cast<int>(host), rates);
    }
    return rates;
  }
};

}  // namespace lockstep::timeline
