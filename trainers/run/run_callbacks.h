#pragma once

#include <cstdint>
#include <functional>

#include "framework/training/evaluation_mode.h"
#include "models/model.h"
#include "trainers/run/reporter.h"
#include "trainers/run/run_state.h"
#include "trainers/run/trainer.h"

namespace lockstep {

/// Calls the functions of a program's own that a run has, with what they are told. Their exceptions
/// gain their name and the step. What they leave otherwise in the model's modes and flags, and in
/// GradMode, is set back, with one warning. One on each replica; one thread.
class RunCallbacks {
 public:
  /// All must live as long.
  RunCallbacks(const Callbacks& callbacks, Trainer& trainer, Model& model, Reporter& reporter)
      : callbacks_(callbacks), trainer_(trainer), reporter_(reporter), modes_(model) {}

  void before_first_step(const RunState& state);
  void after_step(const RunState& state, std::int64_t replica);
  void after_evaluation(const RunState& state, const Evaluation& evaluation);

 private:
  void call(const char* name, const RunState& state, const std::function<void()>& callback);

  const Callbacks& callbacks_;
  Trainer& trainer_;
  Reporter& reporter_;
  training::ModuleModes modes_;  // in which the model trains
  bool has_warned_ = false;
};

}  // namespace lockstep
