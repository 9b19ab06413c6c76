#include "trainers/bench/collectives.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/base/wording.h"
#include "trainers/bench/contestants.h"
#include "trainers/bench/own_systems.h"
#include "trainers/bench/peers.h"
#include "trainers/bench/plot.h"
#include "trainers/bench/progress_line.h"
#include "trainers/bench/report_json.h"
#include "trainers/bench/report_text.h"
#include "trainers/bench/units.h"

namespace lockstep::bench {
namespace {

// The sizes as this operation can have them, each once.
std::vector<std::int64_t> usable_sizes(const CollectivesOptions& options, Operation operation,
                                       std::int64_t replicas) {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t size : options.sizes)
    sizes.push_back(usable_size(operation, replicas, size));
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

// Input, output and what a system may need on top, for every replica of every system: all hold
// their buffers at once.
std::int64_t memory_needed(std::size_t systems, std::int64_t replicas, std::int64_t bytes) {
  return static_cast<std::int64_t>(systems) * replicas * bytes * 5 / 2;
}

void note_once(OperationResult& result, const std::string& note) {
  if (std::find(result.notes.begin(), result.notes.end(), note) == result.notes.end())
    result.notes.push_back(note);
}

void measure_operation(const Crew& crew, const CollectivesOptions& options, OperationResult& result,
                       ProgressLine& progress) {
  for (const std::int64_t bytes : usable_sizes(options, result.operation, result.replicas)) {
    progress.show(str(name_of(result.operation), ", ", counted(result.replicas, "replica"), ", ",
                      size_text(bytes)));
    const std::int64_t needed = memory_needed(crew.size(), result.replicas, bytes);
    const auto available = static_cast<std::int64_t>(available_memory());
    if (needed > available) {
      note_once(result, str(size_text(bytes),
                            " is left out: the buffers of all systems take up to ", needed >> 20,
                            " MiB, and ", available >> 20, " MiB are free; --systems picks fewer"));
      continue;
    }
    result.sizes.push_back(
        {bytes, measure(crew, name_of(result.operation), bytes, options.repetitions)});
    for (const Measurement& measurement : result.sizes.back().measurements) {
      if (!measurement.note.empty())
        note_once(result, str(measurement.label, ": ", measurement.note));
    }
  }
}

}  // namespace

void run_collectives(const CollectivesOptions& options) {
  const Workplace workplace;
  const Contestants contestants = find_contestants(
      workplace, options, own_collective_systems(),
      [&](const std::string& name, std::vector<System>& systems) {
        add_own_collective_system(name, options.launch, systems);
      },
      peer_names());
  CollectivesReport report{.machine = machine_facts(),
                           .systems = facts_of(contestants.systems),
                           .left_out = contestants.left_out,
                           .results = {}};
  std::cout << heading_text(report.machine, report.systems, report.left_out) << std::endl;
  ProgressLine progress;
  for (const std::int64_t replicas : options.replicas) {
    progress.show(str("starting ", counted(std::ssize(contestants.systems), "system"), " of ",
                      counted(replicas, "replica")));
    const MemoryBandwidth limit =
        measure_memory_bandwidth(std::min(replicas, report.machine.cores));
    Crew crew(workplace, contestants.systems, replicas);
    for (const Operation operation : options.operations) {
      report.results.push_back({operation, replicas, limit, {}, {}});
      measure_operation(crew, options, report.results.back(), progress);
      progress.clear();
      std::cout << result_text(report, report.results.back()) << std::flush;
    }
    crew.finish();
  }
  if (!options.json.empty()) write_file(options.json, to_json(report));
  if (!options.plot.empty()) write_file(options.plot, to_svg(report));
}

}  // namespace lockstep::bench
