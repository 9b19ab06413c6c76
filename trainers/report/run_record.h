#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::report {

/// What has become of a run, as far as its folder tells.
enum class RunStatus {
  running,  ///< its lock is held, and it has no result yet
  ended,    ///< it has a result
  failed,   ///< neither: it has ended by an error, or has no checkpoint
  stopped,  ///< none of these: it goes on from its newest checkpoint with --resume auto
};
[[nodiscard]] const char* name_of(RunStatus status);

/// One value of a series, and how far the run was.
struct Point {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  double elapsed_s = 0;
  double value = 0;  ///< NaN where the file has null: it was not finite
};

/// A line of metrics.jsonl.
struct MetricsLine {
  std::int64_t step = 0;
  std::int64_t samples = 0;  ///< these two are those of the line before where it does not say
  double elapsed_s = 0;
  /// Its other fields, in their order, true as 1: "loss", "test_accuracy", whatever there is. Those
  /// of objects and lists are called "parts.forward" and "parts.0".
  std::vector<std::pair<std::string, double>> numbers = {};
  std::vector<std::pair<std::string, std::string>> texts = {};

  [[nodiscard]] Point point(double value) const { return {step, samples, elapsed_s, value}; }
};
using TakeLine = std::function<void(const MetricsLine& line)>;

/// A series in short; all points are passed to a TakeLine.
struct SeriesSummary {
  std::int64_t points = 0;
  Point last = {};
  /// Of the finite values, the first of equal ones; none if none is finite.
  std::optional<Point> least = {};
  std::optional<Point> greatest = {};
  double sum = 0;           ///< of the finite values,
  std::int64_t finite = 0;  ///< of which there are so many

  /// Of the finite values.
  [[nodiscard]] std::optional<double> mean() const {
    return finite == 0 ? std::nullopt : std::optional(sum / static_cast<double>(finite));
  }
};

/// A line of a run's events: its start, each time that it goes on, and stalls.
struct RunEvent {
  double time = 0;                     ///< seconds since 1970, as metrics have them
  std::string name = {};               ///< "started" or "stalled"
  nlohmann::ordered_json fields = {};  ///< all of them
};

/// What a run's folder says.
struct RunRecord {
  std::filesystem::path folder;
  RunStatus status = RunStatus::failed;
  double age_s = 0;  ///< since the run has last written a line of metrics, its result or its config
  /// The config's values by "section.key", as YAML of one line: {"optimizer.lr", "0.1"}.
  std::map<std::string, std::string> config = {};
  nlohmann::ordered_json result = {};  ///< result.json; null until the run has ended
  /// What a failed run's last failure was; "" where no failure.json tells.
  std::string failure = {};
  std::int64_t lines = 0;  ///< of metrics
  /// How far the last of them was, and the step of the newest checkpoint, if that is later; its
  /// value says nothing.
  Point end = {};
  /// By name. Figures of the best step stand at that step.
  std::map<std::string, SeriesSummary> series = {};
  std::optional<std::int64_t> checkpoint = {};  ///< the newest one's step
  /// Steps of checkpoints that the run left behind where it went on from an earlier one.
  std::vector<std::int64_t> set_aside = {};
};

/// Reads a run's folder, whose run may go on meanwhile; each line of metrics is passed to `take`,
/// too, and not kept. ValueError for a folder without a run (holds_run()) and a config that is no
/// YAML; DataError for files that are damaged or can't be read, naming file and line.
[[nodiscard]] RunRecord read_run(const std::filesystem::path& folder, const TakeLine& take = {});

/// The events of a run, in their order; none where there is no such file. A last line that a kill
/// has cut off is left out. DataError, naming file and line, for any other that is no JSON object
/// with "time" and "event".
[[nodiscard]] std::vector<RunEvent> read_events(const std::filesystem::path& folder);

/// The JSON object in a file. DataError for another file, naming it.
[[nodiscard]] nlohmann::ordered_json json_object_in(const std::filesystem::path& file);

/// Passes the lines of a run's metrics.jsonl to `take`, in their order; none where there is no such
/// file. A last line that a kill has cut off is passed over. DataError, naming file and line, for
/// any other that is no JSON object with a whole number as "step".
void read_metrics(const std::filesystem::path& folder, const TakeLine& take);

}  // namespace lockstep::report
