#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "framework/storage/manifest.h"

namespace lockstep::storage {

/// The folder of a run's checkpoints:
///
///   step-00001000/   a checkpoint: manifest.json and the files that it lists
///   step-00002000/
///   latest           leads to the one published last, or from which a run has gone on
///   best             leads to the best, if the run names a figure for that
///   aside-step-00002500/      one that a run left behind by going on from an earlier one
///   .step-00003000.tmp/       one that is being written, or whose writer was killed
///   .step-00000500.old.tmp/   a whole one that is being removed or replaced
///
/// `latest` and `best` are relative links or, where the file system has none, files with the name
/// of a step. In a copy of the folder that followed links they are whole checkpoints: their paths
/// can be read, but nothing is saved beside them.
///
/// New names and files are on the disk when a method returns; removals may come later. Errors are
/// of the type Error and name the path and the reason. A negative step is a ValueError.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::filesystem::path& path)
      : path_(path.has_filename() ? path : path.parent_path()) {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Returns the step of a folder that has the name of_step() gives; nothing for other names.
  [[nodiscard]] static std::optional<std::int64_t> step_of(const std::filesystem::path& folder);
  /// Returns the checkpoint that a user names by `path`: the target of its links and, if that is a
  /// file with the name of a step, the folder of this name beside it; else `path` itself. Throws
  /// DataError, naming it, for links that lead back to themselves and a file that can't be read.
  [[nodiscard]] static std::filesystem::path resolved(std::filesystem::path path);
  /// Returns the path of this step's checkpoint, once it is whole.
  [[nodiscard]] std::filesystem::path of_step(std::int64_t step) const;
  /// Returns the folder in which its files are written before that.
  [[nodiscard]] std::filesystem::path unfinished(std::int64_t step) const;

  /// Returns the steps whose folders are here, from the highest to the lowest. The folders may be
  /// damaged. There are none if path() does not exist.
  [[nodiscard]] std::vector<std::int64_t> steps() const;

  /// Throws DataError if `latest` or `best` is a folder: no link can take its place.
  void check_links() const;
  /// Makes unfinished(step) and, if its parent exists, path(): a run's folder that was removed does
  /// not come back. A killed writer's files stay there until publish(). Several processes may call
  /// this at once. Throws as check_links() does.
  void begin(std::int64_t step) const;
  /// Writes the manifest into unfinished(step), where all of its files are on the disk already, and
  /// removes other files. Then gives the folder its name, and makes `latest` lead to it. A
  /// checkpoint that has the name is replaced at once; where the file system can't exchange names,
  /// none has it for a moment. Throws DataError, as CheckpointReader does, if a file is missing or
  /// of another size. After an error the old checkpoint or the new one is in place.
  void publish(const Manifest& manifest) const;
  /// Replaces the manifest of its step's checkpoint, whose files stay.
  void amend(const Manifest& manifest) const;
  /// Makes `best` lead to the checkpoint of this step, which is here.
  void set_best(std::int64_t step) const { set_link(kBest, step); }
  /// Return the steps to whose checkpoints `latest` and `best` lead, if these are here.
  [[nodiscard]] std::optional<std::int64_t> latest() const { return linked(kLatest); }
  [[nodiscard]] std::optional<std::int64_t> best() const { return linked(kBest); }
  /// Removes all checkpoints but the `keep` of the highest steps, at least one, and those to which
  /// `latest` and `best` lead. Renames each first, so that a part of one never looks like a whole.
  void prune(std::int64_t keep) const;
  /// Renames the checkpoints of steps after `step`, from which the run goes on: they are no part of
  /// the run any more. If there are any, `latest` then leads to `step`, and `best` is removed if it
  /// led to one of them. Replaces older ones that have their new names. Returns how many were
  /// renamed. Throws DataError, before anything is renamed, if `latest` or `best` is a folder, or
  /// neither a file nor a link to a file or folder.
  std::int64_t set_aside_after(std::int64_t step) const;
  /// Removes what killed writers have left. A whole checkpoint that was about to be replaced or
  /// removed gets its name back. No other process may be writing here.
  void sweep() const;

 private:
  [[nodiscard]] std::filesystem::path removed(std::int64_t step) const;
  static constexpr const char* kLatest = "latest";
  static constexpr const char* kBest = "best";

  [[nodiscard]] std::optional<std::int64_t> linked(const char* link) const;
  void set_link(const char* link, std::int64_t step) const;
  // Gives the unfinished checkpoint its name.
  void put_in_place(std::int64_t step) const;

  std::filesystem::path path_;
};

}  // namespace lockstep::storage
