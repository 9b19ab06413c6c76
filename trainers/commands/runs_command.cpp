#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "framework/base/cores.h"
#include "framework/base/text.h"
#include "framework/telemetry/progress.h"
#include "framework/telemetry/run_folder.h"
#include "trainers/commands/command_line.h"
#include "trainers/commands/flags.h"
#include "trainers/report/run_table.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

constexpr const char* kRunsHelp =
    R"(FOLDER is a folder of runs (default: runs), of folders with runs, or one run's. Other folders are
passed over.

A run is running, has ended, has failed by an error (inspect tells more) or before its first
checkpoint, or has stopped: --resume auto goes on. Its age is the time since it last wrote
something; "resumes" is how often it has gone on. Figures are those that were last measured; "best"
is the best so far of the one that is sorted by, or else of the figure by which the validation set
decides. --sort accuracy, or loss, is by the validation set's or, of runs without one, by the test
set's; --sort best_accuracy by the best so far, --sort train_loss by the training's loss, --sort
optimizer.lr by a key of the configs. test_best_… are of the test set, by the weights of the best
step. Keys that differ between the runs have a column each. samples_per_s of CSV and JSON is of the
time of steps, without evaluations and checkpoints. On a narrow terminal what matters least is left
out.
)";

// Adds runs with their names and folders alone.
void add_runs(const fs::path& folder, std::vector<report::ListedRun>& runs) {
  const auto add = [&](const std::string& name, const fs::path& path) {
    runs.push_back({.name = name, .record = {.folder = path}});
  };
  if (holds_run(folder)) {
    const fs::path path = folder.has_filename() ? folder : folder.parent_path();
    return add(path.filename(), path);
  }
  std::error_code error;
  require(fs::is_directory(folder, error), "there is no folder ", folder.string(),
          " of runs: name one, or begin a run");
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         error);
  require(!error && ::access(folder.c_str(), R_OK) == 0, "the folder ", folder.string(),
          " can't be read: ", text_of_errno(error ? error.value() : errno));
  for (; entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (!holds_run(entry->path())) continue;
    entry.disable_recursion_pending();
    add(entry->path().lexically_relative(folder), entry->path());
  }
  require(!error, "the folder ", folder.string(), " can't be read: ", text_of_errno(error.value()));
}

// Reads the runs, some at a time.
void read(std::vector<report::ListedRun>& runs) {
  constexpr std::int64_t kMostThreads = 8;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < runs.size(); i = next++) {
      std::string name = std::move(runs[i].name);
      runs[i] = report::listed_run(runs[i].record.folder);
      runs[i].name = std::move(name);
    }
  };
  std::vector<std::jthread> others;
  const std::int64_t threads = std::min({usable_cores(), kMostThreads, std::ssize(runs)});
  while (std::ssize(others) + 1 < threads) others.emplace_back(work);
  work();
}

// The runs in the folders, the one that has written last first.
std::vector<report::ListedRun> runs_in(const std::vector<fs::path>& folders) {
  std::vector<report::ListedRun> runs;
  for (const fs::path& folder : folders) add_runs(folder, runs);
  std::set<fs::path> known;
  std::erase_if(runs, [&](const report::ListedRun& run) {
    return !known.insert(fs::weakly_canonical(run.record.folder)).second;
  });
  read(runs);
  report::tell_apart(runs);
  std::ranges::sort(runs, [](const auto& a, const auto& b) {
    return a.record.age_s != b.record.age_s ? a.record.age_s < b.record.age_s : a.name < b.name;
  });
  return runs;
}

}  // namespace

int run_runs(int argc, const char* const* argv) {
  std::optional<std::string> sort;
  std::string format = "text";
  std::vector<fs::path> folders;
  const CommandLine line{
      .program = program_name("runs"),
      .usage = "[FOLDER...] [flags]",
      .what =
          "Lists runs with what has become of them, their figures and their age, the latest "
          "first.",
      .flags = {{"--sort", "METRIC",
                 "The best first by this metric, such as accuracy, or by a key of the configs",
                 sets(sort)},
                table_format_flag(format)},
      .more = kRunsHelp,
      .operand = [&](const std::string& given) { folders.emplace_back(given); },
      .has_many = true};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  if (folders.empty()) folders.emplace_back("runs");
  std::vector<report::ListedRun> runs = runs_in(folders);
  if (sort && !runs.empty()) report::sort_runs(runs, *sort);
  const std::vector<std::string> keys = report::differing_keys(runs);
  if (format == "csv") return print(report::runs_csv(runs, keys));
  if (format == "json") return print(report::json_line(report::runs_json(runs, keys)));
  if (runs.empty()) {
    const auto names = mapped(folders, [](const fs::path& folder) { return folder.string(); });
    return print(str("there are no runs in ", join(names), "\n"));
  }
  return print(report::runs_text(runs, sort, terminal_columns(stdout)));
}

}  // namespace lockstep
