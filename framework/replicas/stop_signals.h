#pragma once

#include <signal.h>

namespace lockstep {

/// Catches SIGINT and SIGTERM while it lives, one object at a time in a process, and makes them a
/// descriptor that poll() can wait for.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The first signal that came, or 0.
  [[nodiscard]] int signal() const noexcept;
  /// Readable once a signal has come.
  [[nodiscard]] int descriptor() const noexcept;

 private:
  struct sigaction old_interrupt_;
  struct sigaction old_terminate_;
};

}  // namespace lockstep
