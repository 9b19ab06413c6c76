#pragma once

#include <array>
#include <utility>

#include <signal.h>

#include "framework/replicas/worker_process.h"

namespace lockstep::replicas {

/// While this lives, SIGINT and SIGTERM call `handler`, unless the program ignores the signal.
class StopHandler {
 public:
  explicit StopHandler(void (*handler)(int));
  ~StopHandler();
  StopHandler(const StopHandler&) = delete;
  StopHandler& operator=(const StopHandler&) = delete;

 private:
  std::array<struct sigaction, 2> old_;
};

/// While this lives, catches SIGINT and SIGTERM and makes a descriptor readable for poll(). A
/// process may have one such object at a time.
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
