#pragma once

#include "trainers/run/trainer.h"

namespace lockstep::testing {

/// Registers a model, a data set, a loss, a metric and an optimizer, each called "faulty", which
/// throw as their key `fault` says, and a metric "growing": see their sources.
void register_faulty_parts();

/// Callbacks of which the one that the variable FAULTY_CALLBACK names throws.
[[nodiscard]] Callbacks faulty_callbacks();

}  // namespace lockstep::testing
