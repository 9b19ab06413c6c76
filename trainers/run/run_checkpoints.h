#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "framework/checkpoint/checkpoint.h"
#include "framework/training/zero.h"
#include "trainers/config/config.h"

namespace lockstep {

/// A run's checkpoints, as the config's section says. All replicas call everything together.
class RunCheckpoints {
 public:
  /// `before_publish`: as CheckpointSaver::Options has it.
  RunCheckpoints(const Config& config, const std::filesystem::path& output, ZeroTrainer& trainer,
                 std::function<void()> before_publish);

  /// Whether the config asks for one after `steps`, which are not the last.
  [[nodiscard]] bool is_due(std::int64_t steps) const;
  /// Before a step: tells the others whether this replica's part of a save is done.
  void before_step();
  /// After it: goes on with a save that all are ready for.
  void after_step(const StepReport& report);
  /// Begins to save; if the config says so, ends it, too. `figure`: the one by which this is the
  /// best checkpoint so far.
  void save(CheckpointInfo info, std::optional<double> figure = std::nullopt);
  /// Says more in the last checkpoint, which is whole: see CheckpointSaver::amend().
  void amend(CheckpointInfo info, std::optional<double> figure = std::nullopt);
  /// Ends a save that is under way.
  void finish();
  /// After an error of any replica: saves the trainer's last step. See
  /// CheckpointSaver::save_apart().
  [[nodiscard]] CheckpointSaver::Apart save_apart(CheckpointInfo info,
                                                  const std::string& why) noexcept;
  /// Whether the checkpoint of `step` is whole.
  [[nodiscard]] bool has(std::int64_t step) const {
    return whole_.last_step == step && !saver_.pending();
  }
  /// Whether a save has ended the run.
  [[nodiscard]] bool have_failed() const noexcept { return have_failed_; }
  /// Goes on from a checkpoint: with the figure of the best before it.
  void go_on(const CheckpointInfo& info);
  /// Steps of the last checkpoint that is whole or being saved; -1: none.
  [[nodiscard]] std::int64_t last_step() const noexcept { return now_.last_step; }
  /// The figure of the best of them.
  [[nodiscard]] std::optional<double> best() const noexcept { return now_.best; }
  /// CheckpointSaver's.
  [[nodiscard]] std::int64_t staged_bytes() const { return saver_.staged_bytes(); }

 private:
  struct Saved {
    std::int64_t last_step = -1;
    std::optional<double> best = {};
    std::int64_t best_step = 0;
  };

  void add_best(const Saved& saved, CheckpointInfo& info) const;
  // A failure ends the run or is logged, as the config says.
  void attempt(const std::function<void()>& work);

  const CheckpointOptions& options_;
  AxisNames axis_;
  ZeroTrainer& trainer_;
  CheckpointSaver saver_;
  Saved now_;    // with one that is being saved
  Saved whole_;  // without
  bool have_failed_ = false;
};

/// Flags for ZeroTrainer::tell().
inline constexpr std::uint32_t kToldStop = 1;   ///< a signal asks the run to stop
inline constexpr std::uint32_t kToldReady = 2;  ///< CheckpointSaver::is_ready()

}  // namespace lockstep
