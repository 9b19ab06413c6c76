#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "framework/checkpoint/checkpoint.h"
#include "framework/training/zero.h"
#include "trainers/config/config.h"
#include "trainers/run/run_state.h"

namespace lockstep {

/// A run's checkpoints, as the config's section says: when one is due, which is the best, and what
/// went wrong with the last. One on each replica of the job; one thread. All replicas call
/// everything together, but for save_after_failure().
class RunCheckpoints {
 public:
  /// `describe`: what a checkpoint of now says, but for what is known here. `before_publish`: as
  /// CheckpointSaver::Options has it.
  RunCheckpoints(const Config& config, const std::filesystem::path& output, ZeroTrainer& trainer,
                 std::function<CheckpointInfo()> describe, std::function<void()> before_publish);
  /// Goes on from a checkpoint, in whatever folder: with what it says of the best.
  void go_on(const std::filesystem::path& checkpoint, const CheckpointInfo& info);

  /// Before a step: tells the others whether this replica's part of a save is done.
  void before_step();
  /// After one that is not the last: goes on with a save that all are ready for, and saves where
  /// the step is to be the best, or is due.
  void after_step(const RunState& state);
  /// The last step has figures that its checkpoint lacks. With `best` it is to be the best one.
  void note_evaluation(std::optional<double> best) {
    has_news_ = true;
    owed_best_ = best;
  }
  [[nodiscard]] bool owes_best() const { return owed_best_.has_value(); }
  /// Begins to save; if the config says so, ends it, too.
  void save();
  /// Saves the run's last step, before an evaluation of it: that may fail. Or says what it has
  /// shown in the checkpoint that is there. check_last() throws what goes wrong with that.
  void save_last(const RunState& state);
  /// Ends a save that is under way.
  void finish();
  /// Error if the last step could not be saved. Warns if evaluations have decided, and none had a
  /// figure by which a checkpoint could be the best, as one was to be. For replica 0 alone.
  void check_last(bool have_decided) const;
  /// After `error` of any replica: saves the trainer's last step, if all have done it, without
  /// collectives: see CheckpointSaver::save_apart(). Returns what has become of it, a line for the
  /// error's end; "" if nothing is lost or the error itself says it.
  [[nodiscard]] std::string save_after_failure(const std::exception_ptr& error,
                                               const RunState& state);

  /// Steps of the last checkpoint that is whole or being saved; -1: none.
  [[nodiscard]] std::int64_t last_step() const noexcept { return now_.last_step; }
  /// The figure of the best of them, and its step if there is one.
  [[nodiscard]] std::optional<double> best() const noexcept { return now_.best; }
  [[nodiscard]] std::int64_t best_step() const noexcept { return now_.best_step; }
  /// CheckpointSaver's.
  [[nodiscard]] std::int64_t staged_bytes() const { return saver_.staged_bytes(); }

 private:
  struct Saved {
    std::int64_t last_step = -1;
    std::optional<double> best = {};
    std::int64_t best_step = 0;
  };

  // Calls save(info, is_best), which saves the last step.
  void save_as(const std::function<void(const CheckpointInfo& info, bool is_best)>& save);
  void add_best(CheckpointInfo& info) const;
  // A failure ends the run or is logged, as the config says.
  void attempt(const std::function<void()>& work);

  const CheckpointOptions& options_;
  AxisNames axis_;
  std::filesystem::path output_;
  ZeroTrainer& trainer_;
  std::function<CheckpointInfo()> describe_;
  CheckpointSaver saver_;
  Saved now_;    // with one that is being saved
  Saved whole_;  // without
  // The last evaluation's figure, if it is the best and its step's checkpoint does not say so yet.
  std::optional<double> owed_best_;
  bool has_news_ = false;        // the last step has figures that no checkpoint has
  bool has_tried_last_ = false;  // to save the last step
  std::string unsaved_;          // what went wrong with that
  bool have_failed_ = false;     // a save has ended the run
};

/// Whether the error says that a replica does not come any more: its part of the state is lost.
[[nodiscard]] bool lacks_replica(const std::exception_ptr& error);

/// Throws the error that is being handled again, with a note as its last line; "": as it is. Errors
/// that have more than a message stay as they are, and the note is logged if `logs`.
[[noreturn]] void rethrow_with(const std::string& note, bool logs);

/// Flags for ZeroTrainer::tell().
inline constexpr std::uint32_t kToldStop = 1;   ///< a signal asks the run to stop
inline constexpr std::uint32_t kToldReady = 2;  ///< CheckpointSaver::is_ready()

}  // namespace lockstep
