#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "framework/base/mutex.h"

namespace lockstep {

/// How far a run is.
struct ProgressState {
  std::int64_t step = 0;                  // steps done
  std::int64_t total = 0;                 // steps in all
  std::int64_t stop = 0;                  // the step after which it stops before; 0: at its end
  std::int64_t epoch = 0;                 // -1: there are none
  std::optional<double> loss{};           // the mean over some steps
  std::optional<double> lr{};             // the learning rate
  std::optional<double> samples_per_s{};  // none before a step is done
  std::optional<double> tokens_per_s{};   // stands in the place of samples
  std::optional<double> waiting{};        // the part of the replicas' time, from 0 to 1
  std::optional<int> slow{};              // the replica that makes the others wait, if it is one
  std::string slow_link{};                // or the link between hosts, by its name
  std::int64_t memory = 0;                // bytes; 0: not known
  double elapsed_s = 0.0;                 // since the first step began
  std::string unit = "step";              // what is counted
};

/// A duration as people read it: 1:05, or 2:03:04 from an hour on, to the nearest second; --:-- for
/// what is not known (negative or not finite).
[[nodiscard]] std::string duration_text(double seconds);

/// The whole state on one line, for a log:
///   step 20/200  epoch 1  loss 0.4312  lr 0.001  10500 samples/s  3% waiting  99.5 MiB  0:09 left
/// Where one replica makes the others wait: "23% waiting for replica 1", or "for host 2's link".
/// Unknown values are left out. The time left is the mean time of a step times the steps to come:
/// --:-- before the first step is done, at least a second before the last. Of a run that stops
/// before its end it is that until then, and the line says so: "step 20/200, stops at 60".
[[nodiscard]] std::string progress_text(const ProgressState& state);

/// The same in fewer than `columns` characters (the last column of some terminals wraps), with a
/// bar where 10 columns or more are free for one:
///   [=====>          ]  step 20/200  epoch 1  loss 0.4312  10500 samples/s  0:09 left
/// Where it doesn't fit, memory goes first, then the learning rate, then what is waited, then
/// samples/s, then the epoch, then the time left, then the loss.
[[nodiscard]] std::string progress_bar(const ProgressState& state, int columns);

/// The width of the terminal that `stream` writes to, now. 80 if the terminal does not tell;
/// nothing if `stream` is no terminal.
[[nodiscard]] std::optional<int> terminal_columns(std::FILE* stream);

/// The same of a terminal that somebody watches: nothing where an engine keeps what is printed
/// (engines::is_logged_by_engine()), since bars would fill its log.
[[nodiscard]] std::optional<int> watched_columns(std::FILE* stream);

/// Shows progress on `stream`: on a terminal as one line that is redrawn, fitted to its width, at
/// least every second; elsewhere as a plain line for every update, and one a minute between them.
/// Errors of the stream are ignored: a run doesn't end because nobody can watch it, nor does a job
/// wait for who reads its stdout (see Output). For any threads.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  using Columns = std::function<std::optional<int>(std::FILE*)>;
  using Now = std::function<Clock::time_point()>;

  /// With `quiet` nothing is shown at all. The stream must outlive this object. `columns` is asked
  /// before each line is drawn.
  explicit Progress(std::FILE* stream = stdout, bool quiet = false,
                    Columns columns = watched_columns, Now now = Clock::now);
  ~Progress() { finish(); }

  /// Shows this state at once.
  void update(const ProgressState& state);

  /// Keeps the state for the next line that is due. Cheap enough for every step.
  void note(const ProgressState& state);

  /// Draws again if due: on a terminal, if time has passed or its width has changed.
  void tick();

  /// Prints a line of the caller's. On a terminal it goes above the progress line.
  void print(std::string_view line);

  /// What others write to the stream next takes the place of the line on a terminal, which is drawn
  /// again when it is due. Where they write nothing, nothing is seen.
  void make_room();

  /// Ends the progress line, so that others may write. More updates may follow.
  void finish();

  [[nodiscard]] bool on_terminal() const noexcept { return on_terminal_; }

 private:
  void take(const ProgressState& state) LOCKSTEP_REQUIRES(mutex_);
  void draw() LOCKSTEP_REQUIRES(mutex_);
  void write(const std::string& text) LOCKSTEP_REQUIRES(mutex_);

  std::FILE* stream_;
  bool quiet_;
  Columns columns_;
  Now now_;
  bool on_terminal_;
  Mutex mutex_;
  // None before the first one and after finish(), and when that was.
  std::optional<ProgressState> state_ LOCKSTEP_GUARDED_BY(mutex_);
  Clock::time_point noted_at_ LOCKSTEP_GUARDED_BY(mutex_);
  // When a line was last shown, how wide the terminal was then, and what of it is not ended yet.
  Clock::time_point drawn_at_ LOCKSTEP_GUARDED_BY(mutex_);
  int drawn_columns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::string drawn_ LOCKSTEP_GUARDED_BY(mutex_);
  bool has_room_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // since it was drawn
};

/// A thread that calls tick() ten times a second until it is stopped; none unless on a terminal. It
/// must end before `progress`.
[[nodiscard]] std::jthread progress_ticks(Progress& progress);

}  // namespace lockstep
