#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// How far a run is.
struct ProgressState {
  std::int64_t step = 0;   // steps done
  std::int64_t total = 0;  // steps in all
  std::int64_t epoch = 0;
  double loss = 0.0;
  double samples_per_s = 0.0;
  double elapsed_s = 0.0;  // since the first step began
};

/// A duration as people read it: 1:05, or 2:03:04 from an hour on, to the nearest second; --:-- for
/// what is not known (negative or not finite).
[[nodiscard]] std::string duration_text(double seconds);

/// The whole state on one line, for a log:
///   step 20/200  epoch 1  loss 0.4312  10500 samples/s  0:09 left
/// What is left is the mean time a step has taken, times the steps to come.
[[nodiscard]] std::string progress_text(const ProgressState& state);

/// The same in fewer than `columns` characters (the last column of some terminals wraps), with a
/// bar where 10 columns or more are free for one:
///   [=====>          ]  step 20/200  epoch 1  loss 0.4312  10500 samples/s  0:09 left
/// Where it doesn't fit, samples/s go first, then the epoch, then the time left, then the loss.
[[nodiscard]] std::string progress_bar(const ProgressState& state, int columns);

/// How wide the terminal is that `stream` writes to, right now: 80 where it doesn't tell; nothing
/// where it is no terminal.
[[nodiscard]] std::optional<int> terminal_columns(std::FILE* stream);

/// Shows progress on `stream`: on a terminal as one line that is redrawn, fitted to its width,
/// elsewhere as a plain line for every update. Errors of the stream are ignored: a run doesn't end
/// because nobody can watch it. For one thread at a time.
class Progress {
 public:
  using Columns = std::function<std::optional<int>(std::FILE*)>;

  /// With `quiet` nothing is shown at all. The stream must outlive this object. `columns` is asked
  /// before each line is drawn.
  explicit Progress(std::FILE* stream = stdout, bool quiet = false,
                    Columns columns = terminal_columns);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void update(const ProgressState& state);

  /// Shows a line of the caller's, on a terminal above the one that is redrawn.
  void print(std::string_view line);

  /// Ends the line that is redrawn, so that others may write. More updates may follow.
  void finish();

 private:
  void show(const std::string& text);

  std::FILE* stream_;
  bool quiet_;
  Columns columns_;
  std::string drawn_;  // the line on the terminal that is not ended yet
};

}  // namespace lockstep
