#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <signal.h>

#include "framework/base/pages.h"
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

/// While this lives, catches SIGINT and SIGTERM, which end a job. A process may have one such
/// object at a time.
class StopSignals {
 public:
  /// With `asked`, the first signal does not end the job: its number is stored there. `asked` must
  /// be 0 and outlive this.
  explicit StopSignals(Word* asked = nullptr);

  /// Whether the first signal only asks.
  [[nodiscard]] bool asks() const noexcept { return asked_ != nullptr; }
  /// The signal that asks, or 0.
  [[nodiscard]] int asked() const noexcept;
  /// Does what a `signal` that asks does, unless there was one.
  void ask(int signal) const noexcept {
    if (asks()) asked_->replace(0, static_cast<std::uint64_t>(signal));
  }
  /// The signal that ends the job, or 0.
  [[nodiscard]] int signal() const noexcept;
  /// Readable for poll() once there is such a signal.
  [[nodiscard]] int descriptor() const noexcept { return pipe_.first.get(); }

  /// Waits for such a signal, at most for `time`.
  void wait(std::chrono::milliseconds time) const;

 private:
  Word* asked_;
  std::pair<Descriptor, Descriptor> pipe_;
  StopHandler handler_;
};

/// What is said of a job that a signal has ended.
[[nodiscard]] std::string stopped_text(int signal);
/// Says on stderr that a signal asks replicas to end.
void tell_asked(int signal);
/// Begins a new line if stderr is a terminal, where progress may stand in the middle of a line.
void leave_progress_line();

}  // namespace lockstep::replicas
