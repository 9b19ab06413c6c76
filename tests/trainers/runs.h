#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/text.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/maps/pmap.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/storage/checkpoint_reader.h"
#include "framework/storage/checksum.h"
#include "framework/storage/safetensors.h"
#include "framework/telemetry/metrics.h"
#include "framework/telemetry/run_folder.h"
#include "tests/catch.h"
#include "tests/support/run_files.h"
#include "trainers/run/resume.h"
#include "trainers/run/run_summary.h"
#include "trainers/run/trainer.h"

namespace lockstep::testing {

/// Trains as the config says, on the replicas of a map, in the folder `options.output`.
inline void train_in_map(const Config& config, const DataSets& data, RunOptions options) {
  options.quiet = true;
  const RunFolderLock lock = claim_run_folder(options.output, to_yaml(config));
  pmap([&] { Trainer(config, data, options).run(); },
       {.axis_name = config.launch.axis_name, .axis_size = config.launch.replicas})();
}

/// Claims the folder of a run, or takes it again for one that goes on from its newest checkpoint.
[[nodiscard]] inline RunFolderLock folder_of_run(Config& config, RunOptions& options,
                                                 bool goes_on) {
  if (!goes_on) return claim_run_folder(options.output, to_yaml(config));
  RunFolderLock lock(options.output);
  options.resume = find_resume_point("auto", options.output, false, config);
  REQUIRE(options.resume);
  const std::int64_t step = options.resume->info.step;
  (void)set_aside_checkpoints(checkpoints_of(options.output), step);
  cut_metrics(options.output, step, entry_of(options.resume->info.texts, kMetricsText));
  cut_summary(options.output, entry_of(options.resume->info.texts, kEventFileText).value_or(""));
  return lock;
}

/// The steps of a run's checkpoints.
inline std::set<std::int64_t> steps_in(const std::filesystem::path& output) {
  const auto steps = storage::CheckpointFolder(checkpoints_of(output)).steps();
  return {steps.begin(), steps.end()};
}

/// The checksum of each tensor of a checkpoint, by name.
inline std::map<std::string, std::string> tensors_of(const std::filesystem::path& checkpoint) {
  const storage::CheckpointReader reader(checkpoint);
  reader.verify();
  std::map<std::string, std::string> checksums;
  for (const storage::ManifestTensor& tensor : reader.manifest().tensors) {
    std::vector<std::byte> bytes(storage::tensor_bytes(tensor.dtype, tensor.shape).value());
    reader.read(tensor, 0, bytes);
    storage::Checksum checksum;
    checksum.add(bytes);
    checksums[tensor.name] = checksum.text();
  }
  return checksums;
}

/// What result.json says of the model and its figures.
inline nlohmann::json result_in(const std::filesystem::path& output) {
  const nlohmann::json result = read_json(output / "result.json");
  nlohmann::json parts;
  for (const char* const part : {"steps", "skipped_steps", "loss", "eval", "validation", "best",
                                 "test_best", "parameters_sha256", "buffers_sha256"}) {
    if (result.contains(part)) parts[part] = result[part];
  }
  return parts;
}

/// A checkpoint's words, but for times, the config and the texts of the run's other files.
inline nlohmann::json said_in(const std::filesystem::path& checkpoint) {
  CheckpointInfo info = checkpoint_info(checkpoint);
  info.figures.erase(kElapsedFigure);
  for (const auto& text : {kConfigText, kMetricsText, kEventFileText}) info.texts.erase(text);
  std::map<std::string, std::string> figures;  // JSON has no NaN
  for (const auto& [name, value] : info.figures) figures[name] = str(value);
  return {info.step, info.counts, figures, info.texts};
}

}  // namespace lockstep::testing
