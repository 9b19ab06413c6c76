#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <signal.h>

#include "framework/base/non_copyable.h"
#include "framework/base/text.h"
#include "framework/base/word.h"
#include "framework/launch/worker_process.h"

namespace lockstep::launcher {

/// Returns a person's name for a signal that stops a job: "Ctrl-C", "SIGTERM".
[[nodiscard]] const char* name_of_stop(int signal) noexcept;
/// Returns the exit status of a job after a signal: 130 for Ctrl-C, 129 for SIGHUP, else 143.
[[nodiscard]] int status_of_stop(int signal) noexcept;
/// Returns true if a job that has ended with this status was stopped.
[[nodiscard]] bool is_status_of_stop(int status) noexcept;

/// While this lives, the signals that stop a job (kStopSignals) call `handler`, except signals that
/// the program handles or ignores. If there are several objects, the newest counts.
class StopHandler : private NonCopyable {
 public:
  explicit StopHandler(void (*handler)(int));
  ~StopHandler();

 private:
  void (*outer_)(int);                               // the handler before
  std::array<bool, kStopSignals.size()> has_set_{};  // the signals that this object catches
};

/// While this lives, catches the signals that stop a job (see StopHandler). One such object a
/// process at a time. Without `asked`, each ends the job. With it they ask at first: the first
/// one's number is stored there. Then only Ctrl-C and SIGTERM can end the job, and only kPatience
/// after the first of them that has come to this process: many senders send twice, or to all hosts.
class StopSignals {
 public:
  static constexpr std::chrono::milliseconds kPatience{2000};

  /// `asked` must be 0 and outlive this. A signal that ends the job calls `end`, if given, in the
  /// handler. In a process that this one has forked, each signal ends that process.
  explicit StopSignals(Word* asked = nullptr, void (*end)(int) = nullptr);

  /// Returns true if the first signal only asks.
  [[nodiscard]] bool asks() const noexcept { return asked_ != nullptr; }
  /// Returns the signal that asks, or 0.
  [[nodiscard]] int asked() const noexcept {
    return asked_ == nullptr ? 0 : static_cast<int>(asked_->load());
  }
  /// Asks with a `signal` that has come to another host, unless a signal has asked already. The
  /// first signal that comes to this process is still its first.
  void ask(int signal) const noexcept {
    if (asks()) asked_->replace(0, static_cast<std::uint64_t>(signal));
  }
  /// Returns the signal that ends the job, or 0.
  [[nodiscard]] int signal() const noexcept;
  /// Returns a descriptor that poll() finds readable once there is such a signal.
  [[nodiscard]] int descriptor() const noexcept { return pipe_.first.get(); }

  /// Says on stderr how long to wait with a Ctrl-C or SIGTERM that came too early to end the job.
  /// To be called now and then, by one thread.
  void tell_early() const;

 private:
  Word* asked_;
  std::pair<Descriptor, Descriptor> pipe_;
  std::optional<StopHandler> handler_;
};

/// Thrown when a signal ends a wait. It is no Error, since nothing has failed.
class Stopped : public std::runtime_error {
 public:
  explicit Stopped(int signal) : Stopped(signal, str("stopped by ", name_of_stop(signal))) {}
  Stopped(int signal, const std::string& text) : std::runtime_error(text), signal_(signal) {}
  [[nodiscard]] int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

/// Returns the text for people on a job that a signal has ended.
[[nodiscard]] std::string stopped_text(int signal);
/// Says on stderr that a signal, perhaps on another host, asks replicas to end.
void tell_asked(int signal, bool is_elsewhere = false);
/// Begins a new line if stderr is a terminal, where progress may stand in the middle of a line.
void leave_progress_line();
/// Says on stderr what stops the program and ends it at once, with the signal's status. A handler.
[[noreturn]] void stop_at_once(int signal);
/// For a process with replicas, whose launcher is told of signals: ignores signals that would end
/// it, since they may come to the whole process group. SIGTERM is ignored only with `asks`, SIGXCPU
/// never: its limit is each process' own.
void leave_stops_to_launcher(bool asks);

/// Lets signals that stop a job come to this thread. For the beginning of a program: a parent that
/// blocks them in its own threads, as the JVM does, hands that down to what it starts.
void unblock_stops() noexcept;

/// If a process' processor time ends with SIGKILL and no SIGXCPU comes before, as `ulimit -t` has
/// it: lets SIGXCPU come before, so that replicas can save. With so many `threads` at work it comes
/// 30 s earlier, or a tenth of the time if that is less.
void be_warned_of_cpu_limit(std::int64_t threads) noexcept;

}  // namespace lockstep::launcher
