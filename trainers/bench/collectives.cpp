#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/memory.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "trainers/bench/hosts.h"
#include "trainers/bench/measuring/machine.h"
#include "trainers/bench/measuring/measure.h"
#include "trainers/bench/measuring/progress_line.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"
#include "trainers/bench/session.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

// The sizes as this operation can have them, each once.
std::vector<std::int64_t> usable_sizes(std::vector<std::int64_t> sizes, Operation operation,
                                       std::int64_t replicas) {
  for (std::int64_t& size : sizes) size = usable_size(operation, replicas, size);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

void note_once(OperationResult& result, const std::string& note) {
  if (std::ranges::count(result.notes, note) == 0) result.notes.push_back(note);
}

void measure_size(const Crew& crew, std::int64_t bytes, const Pace& pace, OperationResult& result) {
  // Input, output and what a system may need on top: all replicas of all systems hold theirs.
  const std::int64_t needed =
      static_cast<std::int64_t>(crew.size()) * result.replicas * bytes * 5 / 2;
  const auto available = static_cast<std::int64_t>(available_memory());
  if (needed > available) {
    note_once(result, str(size_text(bytes), " is left out: the buffers of all systems take up to ",
                          needed >> 20, " MiB, and ", available >> 20,
                          " MiB are free; --systems picks fewer"));
    return;
  }
  result.sizes.push_back({bytes, measure(crew, name_of(result.operation), bytes, pace)});
  for (const Measurement& measurement : result.sizes.back().measurements) {
    if (!measurement.note.empty())
      note_once(result, str(measurement.system.label, ": ", measurement.note));
  }
}

}  // namespace

std::string run_collectives(const Workplace& workplace, const Options& options) {
  const Hosts hosts(options.network);
  const bool one_host = options.network.hosts == 1;
  const auto [found, left_out] =
      one_host ? find_contestants(workplace, options, collective_systems(options.launch),
                                  {"c10d", "openmpi", "jax"})
               : find_contestants(workplace, options,
                                  collective_systems_on_hosts(options.network.hosts), {"c10d"});
  const std::vector<System> systems = hosts.spread(found);
  CollectivesReport report{.heading = begin_report(systems, left_out)};
  const ProgressLine progress;
  for (const std::int64_t replicas : options.replicas) {
    const std::string on_replicas = counted(replicas, "replica");
    progress.show(str("starting ", counted(std::ssize(systems), "system"), " of ", on_replicas));
    const MemoryBandwidth limit =
        one_host ? measure_memory_bandwidth(std::min(replicas, report.heading.machine.cores))
                 : MemoryBandwidth{};
    Crew crew(workplace, systems, replicas);
    for (const Operation operation : options.operations) {
      OperationResult& result = report.results.emplace_back(OperationResult{
          .operation = operation, .replicas = replicas, .limit = limit, .network = hosts.facts()});
      for (const std::int64_t bytes : usable_sizes(options.sizes, operation, replicas)) {
        progress.show(str(name_of(operation), ", ", on_replicas, ", ", size_text(bytes)));
        measure_size(crew, bytes,
                     {.repetitions = options.repetitions, .sent_bytes = hosts.sent_bytes()},
                     result);
      }
      progress.print(result_text(report, result));
    }
    crew.finish();
  }
  return to_json(report);
}

}  // namespace lockstep::bench
