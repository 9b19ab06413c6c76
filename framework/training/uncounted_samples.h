#pragma once

#include "framework/base/scoped_value.h"

namespace lockstep {
namespace training {

/// Whether this thread's samples do not count.
inline constinit thread_local bool are_samples_uncounted = false;

}  // namespace training

/// While this lives, the samples that this thread's modules see do not count: a replica without
/// samples runs the model on any input, so that it takes part in the collectives inside, and says
/// that its loss is of 0 samples. lockstep::BatchNorm then normalizes by the other replicas'
/// statistics, and gives its input no gradient.
///
///   std::optional<lockstep::UncountedSamples> uncounted;
///   if (own_samples == 0) uncounted.emplace();
///   at::Tensor loss = loss_of(model->forward(inputs), targets);
class UncountedSamples : ScopedValue<bool> {
 public:
  UncountedSamples() noexcept : ScopedValue(training::are_samples_uncounted, true) {}
};

}  // namespace lockstep
