#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/memory.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "trainers/bench/measuring/machine.h"
#include "trainers/bench/measuring/measure.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"
#include "trainers/bench/session.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRows = 500;
constexpr std::int64_t kFewColumns = 4;
constexpr std::int64_t kReplicatedMiB = 64;

// Numbers between -1 and 1 with 5 decimals, below the columns' names: c0, c1, …
std::string numbers_in_csv(std::int64_t columns) {
  std::string text = "c0";
  for (std::int64_t i = 1; i < columns; ++i) text += str(",c", i);
  const Key key(0);
  for (std::int64_t i = 0; i < columns * kRows; ++i) {
    constexpr std::int64_t kUnit = 100'000;
    const auto drawn = static_cast<std::int64_t>(key.draw(static_cast<std::uint64_t>(i)) >> 1);
    const double value = static_cast<double>(drawn % (2 * kUnit) - kUnit) / kUnit;
    text += (i % columns == 0 ? '\n' : ',') + formatted("%.5f", value);
  }
  return text + '\n';
}

// A step of `train` on the table's last column.
std::string step_on(const fs::path& table, std::int64_t columns) {
  return str("model: {name: linear}\n", "data: {name: csv, file: ", table, ", target: c",
             columns - 1, ", batch_size: 32}\n", "optimizer: {name: sgd, lr: 0.01}\n",
             "trainer: {steps: 1}\n");
}

PartResult measure_table(const Workplace& workplace, const std::vector<System>& peers,
                         const Options& options, const ProgressLine& progress) {
  const fs::path folder = workplace.folder();
  std::vector<System> systems;
  for (const std::int64_t columns : {options.columns, kFewColumns}) {
    const fs::path table = folder / str(columns, ".csv");
    testing::write_text(table, numbers_in_csv(columns));
    const auto add = [&](const System& reader) {
      systems.push_back(reader);
      systems.back().facts.label += str(", ", counted(columns, "column"));
    };
    add(train_system(step_on(table, columns)));
    for (const System& peer : peers)
      add(changed(peer, [table](Program& program) { program.arguments.push_back(table); }));
  }
  const auto bytes =
      static_cast<std::int64_t>(fs::file_size(folder / str(options.columns, ".csv")));
  return {.name = "table",
          .what = str("start of the program to the first step on a table of ", kRows,
                      " rows in CSV; the wide one has ", text_of_bytes(bytes)),
          .measurements = measure_launches(workplace, systems,
                                           {.replicas = 1, .result = str(kRows, " samples")},
                                           options.few_repetitions(), progress)};
}

// What a call takes longer with a part than without it, turn by turn.
Measurement difference(const std::string& label, const Measurement& with,
                       const Measurement& without) {
  Measurement measurement{.system = with.system};
  measurement.system.label = label;
  for (std::size_t i = 0; i < with.samples.size(); ++i)
    measurement.samples.push_back(with.samples[i] - without.samples[i]);
  return measurement;
}

PartResult measure_replicated(const Workplace& workplace, const Options& options,
                              std::int64_t cores) {
  const MemoryBandwidth limit = measure_memory_bandwidth(std::min(kReplicatedOver, cores));
  const std::int64_t bytes = kReplicatedMiB << 20;
  const std::vector<System> systems{replicated_system(true), replicated_system(false)};
  Crew crew(workplace, systems, kReplicatedOver);
  const std::vector<Measurement> calls =
      measure(crew, "replicated", bytes, {.repetitions = options.repetitions});
  crew.finish();
  const Measurement read{
      .system = {.name = "memory", .label = "memory, read once", .version = ""},
      .samples = {static_cast<double>(kReplicatedOver * bytes) / limit.bytes_per_second}};
  return {.name = "replicated",
          .what = str("shard_map's check of a result of ", text_of_bytes(bytes), " on ",
                      kReplicatedOver, " replicas"),
          .unit = "MiB",
          .amount = kReplicatedMiB,
          .measurements = {difference("check", calls[0], calls[1]), read}};
}

}  // namespace

std::string run_parts(const Workplace& workplace, const Options& options) {
  Contestants peers;  // for the table
  std::vector<System> systems;
  if (options.measures("table")) {
    add_peer(workplace, "pandas", options.pythons, peers);
    if (peers.systems.empty()) add_peer(workplace, "loadtxt", options.pythons, peers);
    systems.push_back(train_system(""));
    systems.insert(systems.end(), peers.systems.begin(), peers.systems.end());
  }
  if (options.measures("replicated")) systems.push_back(replicated_system(true));
  PartsReport report{.heading = begin_report(systems, peers.left_out)};
  const ProgressLine progress;
  const auto add = [&](const PartResult& result) {
    progress.print(result_text(result));
    report.results.push_back(result);
  };
  if (options.measures("table")) add(measure_table(workplace, peers.systems, options, progress));
  if (options.measures("replicated")) {
    progress.show("replicated");
    add(measure_replicated(workplace, options, report.heading.machine.cores));
  }
  return to_json(report);
}

}  // namespace lockstep::bench
