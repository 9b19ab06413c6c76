#pragma once

#include <string>
#include <vector>

#include "trainers/bench/report.h"

namespace lockstep::bench {

/// Rows of cells under a heading, as lines: the first column left-aligned, the others
/// right-aligned.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows);

/// A median with the quartiles in percent of it: "3.02 us -1 +4%".
[[nodiscard]] std::string spread_text(const Quartiles& seconds);

/// The machine, the systems and what was left out: what stands above the tables.
[[nodiscard]] std::string heading_text(const MachineFacts& machine,
                                       const std::vector<SystemFacts>& systems,
                                       const std::vector<LeftOut>& left_out);

/// One operation on one number of replicas: times; bus bandwidth, with Lockstep's share of the
/// memory's bandwidth from 1 MiB on; how many times as fast as each peer each of Lockstep's ways
/// is.
[[nodiscard]] std::string result_text(const CollectivesReport& report,
                                      const OperationResult& result);

/// The time of each system, what it reads of memory a second, and how many times as fast as it each
/// of Lockstep's is.
[[nodiscard]] std::string vdot_text(const VdotReport& report);

}  // namespace lockstep::bench
