#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "trainers/bench/measuring/crew.h"
#include "trainers/bench/measuring/progress_line.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"
#include "trainers/bench/session.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

constexpr std::int64_t kStage = 2;
// Of a system on average, on all replicas: its state, and copies of it while it is made or saved.
constexpr std::int64_t kMemoryAParameter = 24;

// "ext4": of the longest of the mounted folders that lead to this one.
std::string file_system_of(const fs::path& folder) {
  std::error_code ignored;
  const std::string path = fs::canonical(folder, ignored).string() + "/";
  std::ifstream in("/proc/self/mounts");
  std::string found;
  std::size_t longest = 0;
  for (std::string device, mounted, type, rest;
       in >> device >> mounted >> type && std::getline(in, rest);) {
    if (mounted.back() != '/') mounted += '/';
    if (!path.starts_with(mounted) || mounted.size() < longest) continue;
    longest = mounted.size();
    found = type;
  }
  return found;
}

std::vector<fs::path> default_folders() {
  std::vector<fs::path> folders{fs::temp_directory_path()};
  const fs::path memory = "/dev/shm";
  if (fs::is_directory(memory)) folders.push_back(memory);
  return folders;
}

System saving_in(const fs::path& folder, const System& system) {
  fs::create_directory(folder);
  return changed(system,
                 [folder](Program& program) { program.environment[kCheckpoints] = folder; });
}

void check_room(const TemporaryFolder& place, std::size_t systems, std::int64_t parameters) {
  const auto needed = static_cast<std::int64_t>(systems) * kMemoryAParameter * parameters;
  const auto memory = static_cast<std::int64_t>(available_memory());
  require<Error>(needed <= memory, counted(static_cast<std::int64_t>(systems), "system"),
                 " take up to ", text_of_bytes(needed), ", and ", text_of_bytes(memory),
                 " are free; --systems picks fewer, --parameters a smaller model");
  const auto files = 3 * kStateBytesAParameter * parameters;
  const auto room = static_cast<std::int64_t>(fs::space(place.path()).available);
  require<Error>(files <= room, place.path().parent_path().string(), " has room for ",
                 text_of_bytes(room), ", and checkpoints take up to ", text_of_bytes(files));
}

void add(const Ran& ran, PartsMeasurement& measurement) {
  measurement.samples.resize(ran.largest_parts.size());
  for (std::size_t i = 0; i < ran.largest_parts.size(); ++i)
    measurement.samples[i].push_back(ran.largest_parts[i]);
}

// Systems take turns, beginning with another one each time.
std::vector<PartsMeasurement> take_turns(const Crew& crew, std::int64_t parameters,
                                         std::int64_t replicas, std::int64_t repetitions) {
  std::vector<PartsMeasurement> all;
  for (std::size_t i = 0; i < crew.size(); ++i) {
    PartsMeasurement& measurement =
        all.emplace_back(PartsMeasurement{.system = crew[i].system().facts, .replicas = replicas});
    measurement.note = crew[i].prepare("save", parameters);
    (void)crew[i].run(1);
  }
  for (std::int64_t repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < crew.size(); ++i) {
      const std::size_t turn = (i + static_cast<std::size_t>(repetition)) % crew.size();
      add(crew[turn].run(1), all[turn]);
    }
  }
  return all;
}

// Others load what Lockstep has saved last: twice as many replicas at stage 3, which save it again,
// as many at stage 0, which also save, and 1 replica.
std::vector<PartsMeasurement> reload(const Workplace& workplace, const fs::path& folder,
                                     std::int64_t parameters, std::int64_t replicas) {
  std::vector<PartsMeasurement> all;
  for (const auto& [count, stage] :
       {std::pair{2 * replicas, std::int64_t{3}}, std::pair{2 * replicas, std::int64_t{0}},
        std::pair{std::int64_t{1}, std::int64_t{0}}}) {
    const std::vector<System> systems{saving_in(folder, checkpoint_system(stage))};
    const Crew crew(workplace, systems, count);
    PartsMeasurement& measurement =
        all.emplace_back(PartsMeasurement{.system = systems[0].facts, .replicas = count});
    (void)crew[0].prepare("reload", parameters);
    add(crew[0].run(1), measurement);
  }
  return all;
}

}  // namespace

std::string run_checkpoint(const Workplace& workplace, const Options& options) {
  const Contestants contestants = find_contestants(workplace, options, {checkpoint_system(kStage)},
                                                   {"dcp", "dcp_async", "torch_save"});
  CheckpointReport report{.heading = begin_report(contestants.systems, contestants.left_out),
                          .parameters = options.parameters,
                          .bytes = kStateBytesAParameter * options.parameters};
  const ProgressLine progress;
  for (const fs::path& folder : options.folders.empty() ? default_folders() : options.folders) {
    for (const std::int64_t replicas : options.replicas) {
      const TemporaryFolder place(folder);
      check_room(place, contestants.systems.size() + 1, options.parameters);
      progress.show(str("checkpoints of ", counted(replicas, "replica"), " in ", folder.string()));
      std::vector<System> systems = contestants.systems;
      systems.push_back(checkpoint_limits());
      for (System& system : systems) system = saving_in(place.path(system.facts.label), system);
      CheckpointResult result{.folder = folder,
                              .file_system = file_system_of(folder),
                              .replicas = replicas,
                              .limits = {}};
      {
        Crew crew(workplace, systems, replicas);
        result.measurements =
            take_turns(crew, options.parameters, replicas, options.few_repetitions());
        crew.finish();
      }
      result.limits = result.measurements.back();
      result.measurements.pop_back();
      if (contestants.systems[0].facts.own) {
        result.reloads = reload(workplace, place.path(contestants.systems[0].facts.label),
                                options.parameters, replicas);
      }
      report.results.push_back(result);
      progress.print(result_text(report, result));
    }
  }
  return to_json(report);
}

}  // namespace lockstep::bench
