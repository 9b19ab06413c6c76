#pragma once

#include <filesystem>

#include "framework/base/errors.h"
#include "framework/replicas/stop_signals.h"

namespace lockstep::bench {

/// Thrown where the driver waits when Ctrl-C or SIGTERM comes.
class Stopped : public Error {
 public:
  explicit Stopped(int signal);
  [[nodiscard]] int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

/// Where the driver works, one in a process: a temporary folder that only this user can open, the
/// signals that end the measurement, and all processes below this one: whatever of them still runs
/// when it is destroyed is killed and reaped, also what others have started and left behind.
class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const StopSignals& signals() const noexcept { return signals_; }
  /// Throws Stopped once a signal has come.
  void check_signals() const;

 private:
  StopSignals signals_;
  std::filesystem::path folder_;
};

}  // namespace lockstep::bench
