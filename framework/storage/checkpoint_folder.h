#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/storage/manifest.h"

namespace lockstep::storage {

/// The folder of a run's checkpoints:
///
///   step-00001000/   a checkpoint: manifest.json and the files that it lists
///   step-00002000/
///   latest           a link to the newest
///   best             a link to the best, if the run names a figure for that
///   .step-00003000.tmp/   one that is being written, or whose writer was killed
///
/// Folders have the permissions 0700, files 0600. Errors name the path and the reason.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path path) : path_(std::move(path)) {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Where the checkpoint of this step is, once it is whole.
  [[nodiscard]] std::filesystem::path of_step(std::int64_t step) const;
  /// Where its files are written before that.
  [[nodiscard]] std::filesystem::path unfinished(std::int64_t step) const;

  /// The steps whose folders are here, the newest first. They may be damaged. None if there is no
  /// such folder.
  [[nodiscard]] std::vector<std::int64_t> steps() const;

  /// Makes unfinished(step), with its parents. Several processes may do so at once.
  void begin(std::int64_t step) const;
  /// Writes the manifest into unfinished(step), where all of its files are on the disk already,
  /// and removes what is not in it. Then gives the folder its name, durably; a checkpoint that has
  /// it is replaced at once. Then `latest` leads there.
  void publish(const Manifest& manifest) const;
  /// Makes `best` lead to the checkpoint of this step.
  void set_best(std::int64_t step) const;
  [[nodiscard]] std::optional<std::int64_t> best() const;
  /// Removes the oldest checkpoints but for `keep`, and the best. One that is removed is renamed
  /// first, so that a part of one never looks like a whole.
  void prune(std::int64_t keep) const;
  /// Removes what killed writers have left. No other process may be writing here.
  void sweep() const;

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::storage
