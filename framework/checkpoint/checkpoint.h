#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "framework/axes/axis_names.h"
#include "framework/base/non_copyable.h"
#include "framework/training/state.h"

namespace lockstep {

/// What a checkpoint says beside the tensors of the training's state.
struct CheckpointInfo {
  std::int64_t step = 0;                         ///< steps done, which names the folder of a run's
  std::map<std::string, std::int64_t> counts{};  ///< such as the samples consumed
  std::map<std::string, double> figures{};       ///< such as the last loss; NaN and infinity, too
  std::map<std::string, std::string> texts{};    ///< such as the config; none called "not_finite"
  std::int64_t replicas = 1;                     ///< that have saved it; set by saving
};

/// Saves the state of a training: of a ZeroTrainer, of a DataParallel and a ShardedOptimizer, or of
/// several, each a NamedTraining. It goes to `checkpoints`/step-NNNNNNNN, and `checkpoints`/latest
/// leads there. Each replica writes its part to a file of its own, in the format of safetensors;
/// manifest.json lists these files with their checksums. The checkpoint appears once all is on the
/// disk, in place of one of that step. All replicas together, with the same arguments. Error, on
/// all replicas, naming file and reason, if something can't be written: then checkpoints of other
/// steps are unchanged, and that of this step is the old one or the new one.
///
///   save_checkpoint("runs/a/checkpoints", {&trainer}, {.step = trainer.steps()});
///   load_checkpoint("runs/a/checkpoints/latest", {&trainer});
void save_checkpoint(const std::filesystem::path& checkpoints,
                     const std::vector<Stateful*>& trainings, const CheckpointInfo& info,
                     const AxisNames& axis_name = "data",
                     std::source_location where = std::source_location::current());

struct LoadOptions {
  /// Whether tensors that the training or the checkpoint does not have, and those of another shape
  /// or dtype, are logged and left out. Otherwise they are a DataError that lists them.
  bool allow_differences = false;
};

/// Restores a training from the checkpoint `folder`, whatever number of replicas, workers, backend
/// and stage has saved it. Each replica reads only what it keeps. All checksums are compared first,
/// by all replicas in shares. All replicas together. DataError, on all replicas, naming file and
/// reason, for a checkpoint that is damaged or does not fit. If it can't be read while it is
/// restored, the replica that notices throws. After an error the training is of no use, unless the
/// checkpoint was damaged.
CheckpointInfo load_checkpoint(const std::filesystem::path& folder,
                               const std::vector<Stateful*>& trainings,
                               const LoadOptions& options = {}, const AxisNames& axis_name = "data",
                               std::source_location where = std::source_location::current());

/// What the manifest of a checkpoint says. DataError if that is damaged; of the files only the
/// sizes are compared.
[[nodiscard]] CheckpointInfo checkpoint_info(const std::filesystem::path& folder);

/// Reads all of a checkpoint. DataError, naming file and reason, if it is damaged.
void verify_checkpoint(const std::filesystem::path& folder);

/// The newest checkpoint in the folder `checkpoints` whose checksums are right, if there is one.
/// Logs what is wrong with newer ones. Reads all files of these and of the one that it returns:
/// call it in one process, for example before launch().
[[nodiscard]] std::optional<std::filesystem::path> newest_checkpoint(
    const std::filesystem::path& checkpoints);

/// Before a run goes on after `step`: gives checkpoints of later steps in the folder `checkpoints`
/// other names (aside-step-NNNNNNNN), since they are no part of it any more. Returns how many.
std::int64_t set_aside_checkpoints(const std::filesystem::path& checkpoints, std::int64_t step);

/// Makes `best` in the folder `checkpoints` lead to the checkpoint of this step, if it is there.
void set_best_checkpoint(const std::filesystem::path& checkpoints, std::int64_t step);

/// Removes what killed processes have left of checkpoints that they were saving or removing, and
/// gives a whole one its name back. Nobody may be saving there. Only warns of what can't be
/// removed.
void sweep_checkpoints(const std::filesystem::path& checkpoints);

/// Saves checkpoints of a run beside the training, in a folder that CheckpointFolder
/// (storage/checkpoint_folder.h) describes. begin() copies the state to memory that is kept; all
/// else happens in the background, in two phases: the files, then the manifest. After each phase,
/// once all replicas are ready, all of them call advance():
///
///   saver.begin({&trainer}, {.step = step});
///   ...
///   if (saver.is_ready()) trainer.tell(kSaved);
///   if (trainer.step(lr).told_by_all & kSaved) saver.advance();
///   ...
///   saver.finish();
///
/// All replicas call begin(), advance() and finish() together. A saver that ends before finish()
/// gives up the file that it is writing; then there is a checkpoint or none. What is left of it,
/// and of killed writers, goes with the next begin().
class CheckpointSaver : private NonCopyable {
 public:
  struct Options {
    std::int64_t keep = 0;  ///< how many of the newest remain; 0: all
    /// Called on replica 0 in the background before a checkpoint gets its name.
    std::function<void()> before_publish = {};
    AxisNames axis_name = "data";
    /// For save_apart(): a number that no other run in the folder has, the same on all replicas.
    std::uint64_t meeting = 0;
  };
  CheckpointSaver(const std::filesystem::path& checkpoints, Options options);
  ~CheckpointSaver();

  /// Begins to save. `is_best`: `best` is to lead to this one. A save that is under way is finished
  /// first, with what that throws.
  void begin(const std::vector<Stateful*>& trainings, const CheckpointInfo& info,
             bool is_best = false, std::source_location where = std::source_location::current());
  /// Whether a save is under way and this replica's part of the phase is over, done or failed.
  [[nodiscard]] bool is_ready() const;
  /// Goes on to the next phase, or ends the save. Waits for the phase's end. Error, alike on all
  /// replicas, if something can't be written: then the save is over, and checkpoints of other steps
  /// are unchanged. Does nothing if no save is under way.
  void advance(std::source_location where = std::source_location::current());
  /// Calls advance() until no save is under way.
  void finish(std::source_location where = std::source_location::current());
  /// The step that is being saved.
  [[nodiscard]] std::optional<std::int64_t> pending() const;

  /// Says more in the checkpoint of this step, which this saver or one before it has saved: counts,
  /// figures and texts are those of `info` then. Finishes a save that is under way. Errors as
  /// advance(); then the checkpoint is as it was.
  void amend(const CheckpointInfo& info, bool is_best = false,
             std::source_location where = std::source_location::current());

  /// How a save has ended that replicas have made apart.
  struct Apart {
    bool is_saved = false;
    std::string reason{};  ///< why it is not
  };
  /// The last save, after an error on any replica: without collectives, which this replica does not
  /// call any more. Others whose collectives wait for it fall out of these with `why`, and are to
  /// come here, too, each when it can't go on: in their own time, and wherever they are. `visit`
  /// visits this replica's part of a state (ZeroTrainer::visit_last_step()); all must have that of
  /// one step. A save that is under way is ended first. The checkpoint is not counted in
  /// Options::keep, and does not take the place of one that is there. Needs Options::meeting. Does
  /// not throw what goes wrong.
  [[nodiscard]] Apart save_apart(const std::function<void(const VisitState& visit)>& visit,
                                 const CheckpointInfo& info, const std::string& why) noexcept;

  /// Bytes of the copy. It is kept, and as large as this replica's part of a checkpoint.
  [[nodiscard]] std::int64_t staged_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
