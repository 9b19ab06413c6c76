#pragma once

#include <cstdint>
#include <functional>

#include "framework/checkpoint/checkpoint.h"
#include "framework/training/zero.h"
#include "trainers/config.h"

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
  /// Begins to save; if the config says so, ends it, too.
  void save(const CheckpointInfo& info, bool is_best);
  /// Ends a save that is under way.
  void finish();
  /// Steps of the last checkpoint that is whole or being saved; -1: none.
  [[nodiscard]] std::int64_t last_step() const noexcept { return last_step_; }
  /// CheckpointSaver's.
  [[nodiscard]] std::int64_t staged_bytes() const { return saver_.staged_bytes(); }

 private:
  // A failure ends the run or is logged, as the config says.
  void attempt(const std::function<void()>& work);

  const CheckpointOptions& options_;
  AxisNames axis_;
  ZeroTrainer& trainer_;
  CheckpointSaver saver_;
  std::int64_t last_step_ = -1;
  std::int64_t saved_step_ = -1;  // of the last that is whole
};

/// Flags for ZeroTrainer::tell().
inline constexpr std::uint32_t kToldStop = 1;   ///< a signal asks the run to stop
inline constexpr std::uint32_t kToldReady = 2;  ///< CheckpointSaver::is_ready()

}  // namespace lockstep
