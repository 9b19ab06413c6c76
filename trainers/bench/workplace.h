#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <poll.h>

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

/// What came of reading: the end, or nothing in time.
enum class Read { some, end, nothing };

/// Where the driver works, one in a process: a temporary folder that only this user can open, the
/// signals that end the measurement, and all processes below this one: whatever of them still runs
/// when it is destroyed is killed and reaped, also what others have started and left behind.
class Workplace {
 public:
  /// Who says nothing for so long has failed.
  static constexpr std::chrono::seconds kSilence{120};

  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] const StopSignals& signals() const noexcept { return signals_; }
  /// Throws Stopped once a signal has come.
  void check_signals() const;
  /// poll() that throws Stopped when a signal comes, and returns 0 once this process has waited for
  /// `patience`, pauses of it not counted.
  [[nodiscard]] int wait_for(std::vector<pollfd>& polled, std::chrono::milliseconds patience) const;
  /// Waits for something to read, as wait_for(), and appends it to `text`.
  [[nodiscard]] Read read_some(int descriptor, std::string& text,
                               std::chrono::milliseconds patience = kSilence) const;

 private:
  StopSignals signals_;
  std::filesystem::path folder_;
};

}  // namespace lockstep::bench
