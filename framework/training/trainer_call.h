#pragma once

#include <utility>

#include <c10/core/GradMode.h>

#include "framework/axes/environment.h"

namespace lockstep::training {

/// A call of a public function that collectives follow: while it lives, this thread's messages name
/// it and its line, and autograd records nothing.
class TrainerCall : public AxisCall {
 public:
  explicit TrainerCall(AxisCall call) : AxisCall(std::move(call)) {}

 private:
  CalledFrom scope_{*this};
  c10::AutoGradMode no_grad_{false};
};

}  // namespace lockstep::training
