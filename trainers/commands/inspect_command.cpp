#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/storage/checkpoint_reader.h"
#include "framework/telemetry/failure_record.h"
#include "trainers/commands/command_line.h"
#include "trainers/run/resume.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

constexpr const char* kInspectHelp =
    R"(DIR is a checkpoint, such as runs/a/checkpoints/latest; or a run's folder. What has ended that
is then told, if it was an error (its failure.json), and its checkpoints are listed, the newest
first.

Exit status: 0 all is right; 2 something is damaged or missing.
)";

// Returns whether `work` succeeds, and notes what is wrong otherwise.
bool succeeds(const std::function<void()>& work, std::vector<std::string>& problems) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    problems.emplace_back(error.what());
    return false;
  }
}

template <typename Map>
std::string entries_text(const Map& map) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : map) entries.push_back(str(name, " ", value));
  return entries.empty() ? "none" : join(entries);
}

std::string indented(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) result += "  " + line + "\n";
  return result;
}

std::uint64_t size_of(const storage::ManifestTensor& tensor) {
  return storage::tensor_bytes(tensor.dtype, tensor.shape).value_or(0);
}

// Prints the text, and throws DataError with all that is wrong, if something is.
int tell(const std::string& text, const std::vector<std::string>& problems) {
  (void)print(text);
  require<DataError>(problems.empty(), join(problems, "\n"));
  return 0;
}

int inspect_checkpoint(const fs::path& folder) {
  const storage::CheckpointReader reader(folder, storage::CheckSizes::when_read);
  const storage::Manifest& manifest = reader.manifest();
  std::string text =
      str("checkpoint  ", reader.folder().string(), "\nstep        ", manifest.step,
          "\nreplicas    ", manifest.replicas, "\ncounts      ", entries_text(manifest.counts),
          "\nfigures     ", entries_text(manifest.figures), "\n");
  for (const auto& [name, value] : manifest.texts) text += name + ":\n" + indented(value);

  std::vector<std::string> problems;
  text += str("\n", counted(std::ssize(manifest.files), "file"), ":\n");
  TextTable files;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const storage::ManifestFile& file = manifest.files[i];
    const bool is_whole = succeeds([&] { reader.verify(i); }, problems);
    files.push_back({str(file.bytes), file.name + (is_whole ? "  ok" : "  DAMAGED")});
    bytes += file.bytes;
  }
  files.push_back({str(bytes), "in all"});
  text += table_text(files, "rl", "  ");

  text += str("\n", counted(std::ssize(manifest.tensors), "tensor"), ":\n");
  TextTable tensors;
  bytes = 0;
  for (const storage::ManifestTensor& tensor : manifest.tensors) {
    tensors.push_back(
        {tensor.dtype, str(size_of(tensor)), str(tensor.name, "  (", join(tensor.shape), ")")});
    bytes += size_of(tensor);
  }
  tensors.push_back({"", str(bytes), "in all"});
  text += table_text(tensors, "lrl", "  ");
  return tell(text, problems);
}

// A line for the checkpoint, and what is wrong with it.
std::string line_of(const fs::path& folder, std::vector<std::string>& problems) {
  const std::size_t before = problems.size();
  std::string what;
  const auto look = [&] {
    const storage::CheckpointReader reader(folder, storage::CheckSizes::when_read);
    const auto& files = reader.manifest().files;
    what = str("  ", sum_of(files, &storage::ManifestFile::bytes), " bytes");
    for (std::size_t i = 0; i < files.size(); ++i) {
      (void)succeeds([&] { reader.verify(i); }, problems);
    }
  };
  (void)succeeds(look, problems);
  return str(folder.filename().string(), what, problems.size() == before ? "  ok" : "  DAMAGED");
}

// What has ended the run in the folder, by the files that hosts have left of it; "" if there are
// none.
std::string failure_in(const fs::path& run, std::vector<std::string>& problems) {
  std::vector<FailureRecord> records;
  auto written = fs::file_time_type::min();
  std::error_code missing;
  for (const fs::path& file : failure_files(run)) {
    (void)succeeds([&] { records.push_back(read_failure(file)); }, problems);
    written = std::max(written, fs::last_write_time(file, missing));
  }
  if (records.empty()) return "";
  const auto ended = fs::last_write_time(run / "result.json", missing);
  const bool has_gone_on = !missing && ended > written;
  return failure_text(records) + (has_gone_on ? "since then the run has gone on to its end\n" : "");
}

int inspect_folder(const fs::path& path, const std::vector<std::int64_t>& steps, std::string text,
                   std::vector<std::string> problems) {
  const storage::CheckpointFolder folder(path);
  const auto latest = folder.latest();
  const auto best = folder.best();
  text += str(counted(std::ssize(steps), "checkpoint"), " in ", path.string(), ":\n");
  for (const std::int64_t step : steps) {
    text += "  " + line_of(folder.of_step(step), problems);
    if (step == latest) text += "  latest";
    if (step == best) text += "  best";
    text += "\n";
  }
  return tell(text, problems);
}

}  // namespace

int run_inspect(int argc, const char* const* argv) {
  std::optional<std::string> operand;
  const CommandLine line{.program = program_name("inspect"),
                         .usage = "DIR",
                         .what =
                             "Prints what a checkpoint holds and compares all checksums, or tells "
                             "what has ended a run.",
                         .more = kInspectHelp,
                         .operand = [&](const std::string& given) { operand = given; }};
  if (!parse_command_line(argc, argv, line)) return print(help_text(line));
  require(operand.has_value(), "a checkpoint's folder is needed; see ", line.program, " --help");
  const fs::path path = storage::CheckpointFolder::resolved(*operand);
  std::error_code error;
  if (!fs::exists(path / storage::kManifestName, error)) {
    std::vector<std::string> problems;
    std::string failure = failure_in(path, problems);
    for (const fs::path& folder : {path, checkpoints_of(path)}) {
      if (!fs::is_directory(folder, error)) continue;
      const auto steps = storage::CheckpointFolder(folder).steps();
      if (!steps.empty()) return inspect_folder(folder, steps, std::move(failure), problems);
    }
    if (!failure.empty() || !problems.empty()) return tell(failure, problems);
  }
  return inspect_checkpoint(path);
}

}  // namespace lockstep
