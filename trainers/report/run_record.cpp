#include "trainers/report/run_record.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <system_error>

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

constexpr std::size_t kMostSeries = 10'000;  // two of them are a replica's
constexpr std::size_t kMostValues = 100'000;
constexpr std::size_t kLongestConfig = std::size_t{1} << 20;
constexpr double kNotFinite = std::numeric_limits<double>::quiet_NaN();

// Takes the fields of a line as they are parsed: no tree is built of it.
class LineReader : public nlohmann::json_sax<Json> {
 public:
  // Sets the line to what `text` says; whether that is a whole line.
  [[nodiscard]] bool read(std::string_view text, MetricsLine& line) {
    line_ = &line;
    line.numbers.clear();
    line.texts.clear();
    levels_.clear();
    has_step_ = false;
    return Json::sax_parse(text.begin(), text.end(), this) && has_step_;
  }

  bool null() override { return take(kNotFinite); }
  bool boolean(bool value) override { return take(value ? 1 : 0); }
  bool number_integer(number_integer_t value) override { return take_whole(value); }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMost = static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max());
    return value > kMost ? take(static_cast<double>(value))
                         : take_whole(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return take(value); }
  bool string(string_t& value) override {
    if (levels_.empty()) return false;
    line_->texts.emplace_back(next_name(), value);
    return true;
  }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return open(false); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return !levels_.empty() && open(true); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    levels_.back().field = name;
    return true;
  }
  bool parse_error(std::size_t /*place*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  // An object or a list that is open.
  struct Level {
    std::string prefix;  // of the names of its fields
    bool is_list = false;
    std::string field = {};  // the last one of an object
    std::size_t items = 0;   // of a list so far
  };

  std::string next_name() {
    Level& level = levels_.back();
    return level.prefix + (level.is_list ? std::to_string(level.items++) : level.field);
  }

  bool open(bool is_list) {
    if (levels_.size() == formats::kMostJsonLevels) return false;
    levels_.push_back({levels_.empty() ? "" : next_name() + ".", is_list});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  // Whether the next value is that of this field of the line itself.
  [[nodiscard]] bool is_at(const char* name) const {
    return levels_.size() == 1 && levels_.back().field == name;
  }

  bool take_whole(std::int64_t value) {
    if (is_at("step")) {
      line_->step = value;
      has_step_ = true;
    } else if (is_at("samples")) {
      line_->samples = value;
    } else {
      return take(static_cast<double>(value));
    }
    return true;
  }

  bool take(double value) {
    if (levels_.empty() || is_at("step") || is_at("samples")) return false;
    if (is_at("elapsed_s")) {
      line_->elapsed_s = value;
    } else {
      line_->numbers.emplace_back(next_name(), value);
    }
    return true;
  }

  MetricsLine* line_ = nullptr;
  std::vector<Level> levels_;
  bool has_step_ = false;
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
    require<DataError>(is_whole, path.string(), ":", number,
                       ": a line of metrics is a JSON object with a step, not ",
                       keys::yaml_shown(std::string(text)));
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
  read_metrics(folder, [&](const MetricsLine& line) {
    ++run.lines;
    run.end = line.point(0);
    for (const auto& [name, value] : line.numbers) add(line.point(value), run.series[name]);
    require<DataError>(run.series.size() <= kMostSeries, (folder / "metrics.jsonl").string(),
                       " has more than ", kMostSeries, " names");
    if (take) take(line);
  });
  const fs::path result = folder / "result.json";
  if (formats::is_there(result)) run.result = json_object_in(result);
  add_checkpoints(folder / kCheckpointsFolder, run);
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
