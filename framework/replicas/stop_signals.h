#pragma once

#include <array>
#include <utility>

#include <signal.h>

#include "framework/replicas/worker_process.h"

namespace lockstep::replicas {

/// While it lives SIGINT and SIGTERM call `handler`, except one that the program ignores.
class StopHandler {
 public:
  explicit StopHandler(void (*handler)(int));
  ~StopHandler();
  StopHandler(const StopHandler&) = delete;
  StopHandler& operator=(const StopHandler&) = delete;

 private:
  std::array<struct sigaction, 2> old_;
};

/// Catches SIGINT and SIGTERM while it lives, one object at a time in a process, and makes them a
/// descriptor that poll() can wait for.
class StopSignals {
 public:
  StopSignals();

  /// The first signal that came, or 0.
  [[nodiscard]] int signal() const noexcept;
  /// Readable once a signal has come.
  [[nodiscard]] int descriptor() const noexcept { return pipe_.first.get(); }

 private:
  std::pair<Descriptor, Descriptor> pipe_;
  StopHandler handler_;
};

}  // namespace lockstep::replicas
