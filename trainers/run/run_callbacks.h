#pragma once

#include <cstdint>
#include <functional>

#include "trainers/run/reporter.h"
#include "trainers/run/run_state.h"
#include "trainers/run/trainer.h"

namespace lockstep {

/// Calls the functions of a program's own that a run has, with what they are told. Their exceptions
/// gain their name and the step. One on each replica; one thread.
class RunCallbacks {
 public:
  /// All must live as long.
  RunCallbacks(const Callbacks& callbacks, Trainer& trainer, Reporter& reporter)
      : callbacks_(callbacks), trainer_(trainer), reporter_(reporter) {}

  void before_first_step(const RunState& state);
  void after_step(const RunState& state, std::int64_t replica);
  void after_evaluation(const RunState& state, const Evaluation& evaluation);

 private:
  void call(const char* name, const RunState& state, const std::function<void()>& callback);

  const Callbacks& callbacks_;
  Trainer& trainer_;
  Reporter& reporter_;
};

}  // namespace lockstep
