#include "trainers/report/run_record.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <new>
#include <string_view>
#include <system_error>

#include <simdjson.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/json_text.h"
#include "framework/keys/yaml_text.h"
#include "framework/keys/yaml_tree.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/telemetry/failure_record.h"
#include "framework/telemetry/run_folder.h"

namespace fs = std::filesystem;

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;
using Number = std::pair<std::string, double>;

constexpr double kMostSteps = 1e15;
constexpr std::string_view kTestBestFigures = "test_best_";  // of the weights of "best_step"
constexpr std::size_t kMostSeries = 10'000;                  // two of them are a replica's
constexpr std::size_t kMostValues = 100'000;
constexpr std::size_t kLongestConfig = std::size_t{1} << 20;
constexpr double kNotFinite = std::numeric_limits<double>::quiet_NaN();

// Parses lines of metrics. One thread.
class LineReader {
 public:
  LineReader() {
    if (parser_.allocate(kUsualLine, formats::kMostJsonLevels) != 0) throw std::bad_alloc();
  }

  // Sets the line to what `text` says; whether that is a whole line.
  [[nodiscard]] bool read(std::string_view text, MetricsLine& line) {
    line.numbers.clear();
    line.texts.clear();
    text_.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    text_.assign(text);
    simdjson::dom::object fields;
    if (parser_.parse(text_.data(), text_.size(), /*realloc_if_needed=*/false).get(fields) != 0)
      return false;
    bool has_step = false;
    for (const auto& [name, value] : fields) {
      if (name == "step") {
        has_step = true;
        if (value.get(line.step) != 0) return false;
      } else if (name == "samples") {
        if (value.get(line.samples) != 0) return false;
      } else if (name == "elapsed_s") {
        if (value.get(line.elapsed_s) != 0 && !value.is_null()) return false;
      } else {
        add(std::string(name), value, line);
      }
    }
    return has_step;
  }

 private:
  static constexpr std::size_t kUsualLine = std::size_t{1} << 12;

  // Names are put together without streams, which took most of the time.
  static void add(std::string name, const simdjson::dom::element& value, MetricsLine& line) {
    std::string_view text;
    double number = kNotFinite;  // null
    bool flag = false;
    std::size_t items = 0;
    if (value.is_object()) {
      for (const auto& [inner, of_it] : simdjson::dom::object(value))
        add(name + '.' + std::string(inner), of_it, line);
    } else if (value.is_array()) {
      for (const auto& item : simdjson::dom::array(value))
        add(name + '.' + std::to_string(items++), item, line);
    } else if (value.get(text) == 0) {
      line.texts.emplace_back(std::move(name), text);
    } else {
      if (value.get(flag) == 0) number = flag ? 1 : 0;
      if (value.is_number()) number = double(value);
      line.numbers.emplace_back(std::move(name), number);
    }
  }

  simdjson::dom::parser parser_;
  std::string text_;  // the line, before the bytes that the parser may read behind it
};

// A value as YAML of one line. Aliases, which share what they stand for, are written out: `left`
// says how many values may still be.
std::string flow_text(const keys::YamlNode& node, std::size_t& left) {
  require<DataError>(left > 0, node.place.text, ": the config has more than ", kMostValues,
                     " values, with those that aliases repeat");
  --left;
  using Kind = keys::YamlNode::Kind;
  if (node.kind == Kind::null) return "null";
  if (node.kind == Kind::scalar) return node.quoted ? keys::yaml_text(node.text) : node.text;
  const bool is_list = node.kind == Kind::list;
  const auto parts =
      is_list ? mapped(node.items, [&](const auto& item) { return flow_text(*item, left); })
              : mapped(node.entries, [&](const keys::YamlEntry& entry) {
                  return str(keys::yaml_text(entry.key), ": ", flow_text(*entry.value, left));
                });
  return str(is_list ? '[' : '{', join(parts), is_list ? ']' : '}');
}

void add_values(const keys::YamlNode& node, const std::string& name,
                std::map<std::string, std::string>& values, std::size_t& left) {
  if (node.kind != keys::YamlNode::Kind::map || node.entries.empty()) {
    values[name] = flow_text(node, left);
    return;
  }
  for (const keys::YamlEntry& entry : node.entries) {
    add_values(*entry.value, name.empty() ? entry.key : str(name, ".", entry.key), values, left);
  }
}

std::map<std::string, std::string> config_in(const fs::path& path) {
  keys::YamlProblems problems;
  const auto tree =
      keys::parse_yaml(formats::text_in(path, kLongestConfig), {path.string()}, problems);
  problems.finish();
  std::map<std::string, std::string> values;
  std::size_t left = kMostValues;
  if (tree) add_values(*tree, "", values, left);
  return values;
}

// Seconds since the file was written; none if it is not there.
std::optional<double> age_of(const fs::path& path) {
  std::error_code missing;
  const fs::file_time_type written = fs::last_write_time(path, missing);
  if (missing) return std::nullopt;
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
}

void add(const Point& point, SeriesSummary& series) {
  ++series.points;
  series.last = point;
  if (!std::isfinite(point.value)) return;
  series.sum += point.value;
  ++series.finite;
  if (!series.least || point.value < series.least->value) series.least = point;
  if (!series.greatest || point.value > series.greatest->value) series.greatest = point;
}

// The verdict of a failure since which the run has not gone on: it writes its config anew then, or
// the failure itself says that the job starts again.
std::string failure_in(const fs::path& folder, std::optional<double> config_age_s) {
  for (const fs::path& file : failure_files(folder)) {
    const std::optional<double> age_s = age_of(file);
    if (!age_s || !config_age_s || *age_s > *config_age_s) continue;
    const FailureRecord failure = read_failure(file);
    if (!failure.starts_again) return failure.verdict;
  }
  return "";
}

void add_checkpoints(const fs::path& folder, RunRecord& run) {
  const auto steps = storage::CheckpointFolder(folder).steps();
  if (!steps.empty()) run.checkpoint = steps.front();
  std::error_code missing;
  constexpr std::string_view kAside = "aside-";
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kAside)) continue;
    const auto step = storage::CheckpointFolder::step_of(name.substr(kAside.size()));
    if (step) run.set_aside.push_back(*step);
  }
  std::ranges::sort(run.set_aside);
}

}  // namespace

const char* name_of(RunStatus status) {
  switch (status) {
    case RunStatus::running:
      return "running";
    case RunStatus::ended:
      return "ended";
    case RunStatus::stopped:
      return "stopped";
    case RunStatus::failed:
      return "failed";
  }
  return "";
}

Json json_object_in(const fs::path& file) {
  Json object = formats::parse_json<Json>(formats::text_in(file));
  require<DataError>(object.is_object(), file.string(), " is damaged: it is no JSON object");
  return object;
}

void read_metrics(const fs::path& folder, const TakeLine& take) {
  const fs::path path = folder / "metrics.jsonl";
  if (!formats::is_there(path)) return;
  LineReader reader;
  MetricsLine line;
  std::int64_t number = 0;
  formats::for_each_line(path, [&](std::string_view text, bool has_end) {
    ++number;
    const bool is_whole = reader.read(text, line);
    if (!is_whole && !has_end) return true;  // a kill has cut it off
    if (!is_whole) {
      throw DataError(str(path.string(), ":", number,
                          ": a line of metrics is a JSON object with a step, not ",
                          keys::yaml_shown(std::string(text))));
    }
    take(line);
    return true;
  });
}

std::vector<RunEvent> read_events(const fs::path& folder) {
  const fs::path path = folder / kEventsFile;
  std::vector<RunEvent> events;
  if (!formats::is_there(path)) return events;
  std::int64_t number = 0;
  formats::for_each_line(path, [&](std::string_view text, bool has_end) {
    ++number;
    Json fields = formats::parse_json<Json>(text);
    const bool is_whole = fields.is_object() && fields.contains("time") &&
                          fields["time"].is_number() && fields.contains("event") &&
                          fields["event"].is_string();
    if (!is_whole && !has_end) return true;  // a kill has cut it off
    require<DataError>(is_whole, path.string(), ":", number,
                       ": an event is a JSON object with a time and the event's name, not ",
                       keys::yaml_shown(std::string(text)));
    const double time = fields["time"];
    const std::string name = fields["event"];
    events.push_back({time, name, std::move(fields)});
    return true;
  });
  return events;
}

RunRecord read_run(const fs::path& folder, const TakeLine& take) {
  require(holds_run(folder), folder.string(), " is no run's folder: it has no config.yaml");
  RunRecord run{.folder = folder};
  // Before the files are looked at: a run that ends meanwhile then has its result.
  const bool is_running = run_goes_on_in(folder);
  run.config = config_in(folder / "config.yaml");
  std::vector<decltype(run.series)::value_type*> before;  // of the line before, by their places
  read_metrics(folder, [&](const MetricsLine& line) {
    ++run.lines;
    run.end = line.point(0);
    const auto best = std::ranges::find(line.numbers, "best_step", &Number::first);
    before.resize(std::max(before.size(), line.numbers.size()));
    for (std::size_t i = 0; i < line.numbers.size(); ++i) {
      const auto& [name, value] = line.numbers[i];
      Point point = line.point(value);
      const bool is_of_best = best != line.numbers.end() && best->second >= 0 &&
                              best->second < kMostSteps && name.starts_with(kTestBestFigures);
      if (is_of_best) point.step = static_cast<std::int64_t>(best->second);
      if (before[i] == nullptr || before[i]->first != name)
        before[i] = &*run.series.try_emplace(name).first;
      add(point, before[i]->second);
    }
    require<DataError>(run.series.size() <= kMostSeries, (folder / "metrics.jsonl").string(),
                       " has more than ", kMostSeries, " names");
    if (take) take(line);
  });
  const fs::path result = folder / "result.json";
  if (formats::is_there(result)) run.result = json_object_in(result);
  add_checkpoints(folder / kCheckpointsFolder, run);
  // A run that was interrupted has saved a step that no line is about.
  run.end.step = std::max(run.end.step, run.checkpoint.value_or(0));
  if (run.result.is_null() && !is_running) {
    run.failure = failure_in(folder, age_of(folder / "config.yaml"));
  }
  run.status = !run.result.is_null()                   ? RunStatus::ended
               : is_running                            ? RunStatus::running
               : run.checkpoint && run.failure.empty() ? RunStatus::stopped
                                                       : RunStatus::failed;
  double age_s = std::numeric_limits<double>::infinity();
  for (const char* file : {"config.yaml", "metrics.jsonl", "result.json"}) {
    age_s = std::min(age_s, age_of(folder / file).value_or(age_s));
  }
  run.age_s = std::max(age_s, 0.0);  // a clock may have been set back
  return run;
}

}  // namespace lockstep::report
