#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "framework/axes/axis_names.h"

namespace lockstep {

/// Whether a signal asks a run to stop, agreed by its replicas in the midst of work that may take
/// longer than an engine waits. For one piece of work; one thread.
class StopAgreement {
 public:
  explicit StopAgreement(AxisNames axis) : axis_(std::move(axis)) {}

  /// To be called equally often by all replicas, and the same on all. They talk a few times a
  /// second, and after the first part of the work.
  [[nodiscard]] bool is_asked();

 private:
  using Clock = std::chrono::steady_clock;

  AxisNames axis_;
  std::int64_t calls_ = 0;
  std::int64_t next_ = 1;  // the call in which they talk
  const Clock::time_point begin_ = Clock::now();
  bool is_asked_ = false;
};

}  // namespace lockstep
