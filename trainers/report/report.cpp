#include "trainers/report/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/memory.h"
#include "framework/base/number_text.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/storage/file.h"
#include "framework/telemetry/progress.h"
#include "trainers/report/evaluation_tables.h"
#include "trainers/report/figures.h"
#include "trainers/report/run_table.h"

namespace fs = std::filesystem;

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;
using Fields = std::vector<std::pair<std::string, Json>>;

// Where a field of metrics is shown; without a chart: nowhere.
struct Place {
  std::string chart;
  std::string curve;
  int order = 2;     // of its chart: the loss, figures of sets, others
  double scale = 1;  // by which its values are shown
};

// What metrics say of each replica, by its number.
constexpr const char* kReplicaOwn = "replica_own_s";
constexpr const char* kReplicaWaiting = "replica_waiting_s";

// Fields whose names alone don't tell people what they are, or in which unit.
struct Named {
  std::string_view field;
  const char* text;
  double scale = 1;
};
constexpr std::array<Named, 8> kNamed{
    {{"lr", "learning rate"},
     {"gflop_per_s", "GFLOP/s"},
     {"memory", "memory (MiB)", 0x1p-20},
     {"parts", "parts of a step (s)"},
     {"waiting_s", "waiting in a step (s)"},
     {kReplicaOwn, "a replica's own work in a step (s)"},
     {kReplicaWaiting, "waiting of a replica in a step (s)"},
     {"hidden_communication_s", "communication beside a step's other parts (s)"}}};

const Named* named(std::string_view field) {
  const auto* const found = std::ranges::find(kNamed, field, &Named::field);
  return found == kNamed.end() ? nullptr : found;
}

// A field's name for people: "samples_per_s" is "samples/s", "saving_s" is "saving (s)".
std::string shown(std::string name) {
  if (const Named* its = named(name)) return its->text;
  for (const auto& [end, text] : {std::pair{"_per_s", "/s"}, std::pair{"_s", " (s)"}}) {
    const std::string_view ending = end;
    if (name.ends_with(ending)) name.replace(name.size() - ending.size(), ending.size(), text);
  }
  std::ranges::replace(name, '_', ' ');
  return name;
}

// "eval_" is the test set's other name: a line has its figures under both.
constexpr std::array<std::pair<std::string_view, const char*>, 2> kSets{
    {{"validation_", "validation"}, {"test_", "test"}}};

Place place_of(const std::string& name, const std::vector<std::int64_t>& hosts) {
  for (const std::string_view left_out :
       {"time", "epoch", "skipped_steps", "best_step", "resumed_after", "restarts"}) {
    if (name == left_out) return {};
  }
  if (name.starts_with("slow_replica") || name.starts_with("slow_link")) return {};
  if (name.starts_with("eval_") || name.starts_with("test_best_")) return {};
  if (name == "loss") return {"loss", "training", 0};
  for (const auto& [prefix, set] : kSets) {
    if (!name.starts_with(prefix)) continue;
    const std::string figure = name.substr(prefix.size());
    return {shown(figure), set, figure == "loss" ? 0 : 1};
  }
  const std::size_t dot = name.rfind('.');
  const std::string field = name.substr(0, dot);
  const Named* const its = named(field);
  Place place{.chart = shown(field),
              .curve = shown(dot == std::string::npos ? field : name.substr(dot + 1)),
              .scale = its == nullptr ? 1 : its->scale};
  if (field != kReplicaOwn && field != kReplicaWaiting) return place;
  const auto replica = parse_number<std::size_t>(name.substr(dot + 1));
  place.curve = "replica " + name.substr(dot + 1);
  if (replica && *replica < hosts.size()) place.curve += str(" (host ", hosts[*replica], ")");
  return place;
}

std::string shown_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "not a number";
  if (!value.is_array()) return value.dump();
  return join(mapped(value, shown_text), "; ");
}

// What an event says there; "" without it.
std::string text_of(const RunEvent& event, const char* field) {
  const auto found = event.fields.find(field);
  return found == event.fields.end() ? "" : shown_text(*found);
}

// The host of each replica, as the run's last start says it; of one host, none.
std::vector<std::int64_t> hosts_of_replicas(const std::vector<RunEvent>& events) {
  for (const RunEvent& event : std::views::reverse(events)) {
    if (event.name != "started") continue;
    const auto hosts = event.fields.find("replica_hosts");
    if (hosts == event.fields.end() || !hosts->is_array()) break;
    return mapped(*hosts, [](const Json& host) {
      return host.is_number_integer() ? host.get<std::int64_t>() : std::int64_t{0};
    });
  }
  return {};
}

std::optional<double> number_of(const MetricsLine& line, std::string_view name) {
  const auto found = std::ranges::find(line.numbers, name, &std::pair<std::string, double>::first);
  return found == line.numbers.end() ? std::nullopt : std::optional(found->second);
}

// Puts the lines of a run in charts, and notes what happened.
class Charts {
 public:
  explicit Charts(const std::vector<RunEvent>& events)
      : events_(events), hosts_(hosts_of_replicas(events)) {}

  void add(const MetricsLine& line) {
    if (const auto time = number_of(line, "time")) note_events(line.point(0), *time);
    for (const auto& [name, value] : line.numbers) {
      if (name == "skipped_steps") note_skipped(line.point(value));
      if (name == "resumed_after") note_resumed(value, line);
      const auto& place = place_in_charts(name);
      if (!place) continue;
      charts_[place->chart].points[place->curve].add(line.point(value * place->scale));
    }
    note_slow(line);
    last_ = line.point(0);
  }

  /// All lines are there.
  void finish() {
    if (events_.empty()) return;
    Point end = last_;
    const double time = events_.back().time;
    if (last_time_) end.elapsed_s += std::max(time - *last_time_, 0.0);
    note_events(end, time);
  }

  [[nodiscard]] std::vector<Chart> charts() {
    for (Ordered& each : charts_) {
      for (std::size_t i = 0; i < each.points.size(); ++i) {
        each.chart.curves[i].points = each.points[i].points();
      }
      each.points.clear();
      if (each.chart.name == shown("parts")) {
        const std::vector<std::string> texts{slow_replica_text(), slow_link_text()};
        each.chart.note = join(filtered(texts, [](auto& text) { return !text.empty(); }), "; ");
      }
      if (each.chart.name != shown(kReplicaOwn) && each.chart.name != shown(kReplicaWaiting)) {
        continue;
      }
      // Lines have replicas by their names: 10 before 2.
      std::ranges::sort(each.chart.curves, {}, [](const Curve& curve) {
        return std::pair(curve.name.size(), curve.name);
      });
    }
    std::ranges::stable_sort(charts_, {}, &Ordered::order);
    return mapped(charts_, [](Ordered& each) { return std::move(each.chart); });
  }
  [[nodiscard]] std::vector<Mark> marks() { return std::move(marks_); }
  /// The replica that was slow last, and what that cost; "" if none was. Likewise the link.
  [[nodiscard]] std::string slow_replica_text() const { return slow_replica_.all(); }
  [[nodiscard]] std::string slow_link_text() const { return slow_link_.all(); }

 private:
  using Text = std::pair<std::string, std::string>;
  struct Ordered {
    Chart chart;  // without points, until all are there
    int order;
    std::vector<CurvePoints> points = {};  // of its curves
  };
  // Who is slow, or was until a step.
  struct Slow {
    std::string who{};  // now; "": nobody
    std::string text{};
    std::int64_t until = 0;  // the last line that named it

    [[nodiscard]] std::string all() const {
      return text + (text.empty() || !who.empty() ? "" : str(", until step ", until));
    }
  };

  struct Shown {
    std::size_t chart;
    std::size_t curve;
    double scale;
  };

  // None: it is shown nowhere.
  const std::optional<Shown>& place_in_charts(const std::string& name) {
    const auto [at, is_new] = places_.try_emplace(name);
    if (is_new) {
      const Place place = place_of(name, hosts_);
      if (place.chart.empty()) return at->second;
      auto chart = std::ranges::find(charts_, place.chart,
                                     [](const Ordered& each) { return each.chart.name; });
      if (chart == charts_.end()) {
        chart = charts_.insert(chart, {{.name = place.chart}, place.order});
      }
      chart->chart.curves.push_back({.name = place.curve});
      chart->points.emplace_back();
      at->second = {static_cast<std::size_t>(chart - charts_.begin()),
                    chart->chart.curves.size() - 1, place.scale};
    }
    return at->second;
  }

  // Those that were until the time of this point. They happened after the point before.
  void note_events(const Point& point, double time) {
    for (; next_event_ < events_.size() && events_[next_event_].time <= time; ++next_event_) {
      const RunEvent& event = events_[next_event_];
      if (event.name == "started") start_ = &event;
      if (event.name != "stalled") continue;
      Point at = last_;
      at.elapsed_s = std::clamp(point.elapsed_s - (time - event.time), last_.elapsed_s,
                                std::max(point.elapsed_s, last_.elapsed_s));
      marks_.push_back({at, "stalled", text_of(event, "text")});
    }
    last_time_ = time;
  }

  // Lines say how many there have been in all.
  void note_skipped(const Point& point) {
    const double more = point.value - skipped_;
    skipped_ = point.value;
    if (!(more >= 1)) return;
    marks_.push_back({point, "skipped",
                      counted(static_cast<std::int64_t>(more), "step") +
                          " skipped since the line before: the loss or a gradient was not finite"});
  }

  // The first line behind it says so, and whether the job had lost a replica.
  void note_resumed(double step, const MetricsLine& line) {
    const bool is_restart = number_of(line, "restarts").has_value();
    Point point = last_;
    point.step = static_cast<std::int64_t>(step);
    const std::string changes = start_ == nullptr ? "" : text_of(*start_, "changes");
    marks_.push_back(
        {point, is_restart ? "restarted" : "resumed",
         str(is_restart ? str("started again after step ", point.step, ", since a replica was lost")
                        : str("went on after step ", point.step),
             changes.empty() ? "" : ": ", changes)});
  }

  // A logged line says who is slow.
  void note_slow(const MetricsLine& line) {
    if (!number_of(line, "lr")) return;
    const auto replica = number_of(line, "slow_replica");
    note_slow(line, "slow_replica", replica ? str("replica ", *replica) : "",
              " makes the others wait: at their pace", slow_replica_);
    const auto link = std::ranges::find(line.texts, "slow_link", &Text::first);
    note_slow(line, "slow_link", link == line.texts.end() ? "" : link->second,
              " is slow: with the best one's rate", slow_link_);
  }
  void note_slow(const MetricsLine& line, const std::string& field, const std::string& who,
                 const std::string& how, Slow& slow) {
    if (!who.empty()) {
      slow.text = who + how +
                  formatted(" the median step takes %.3g ms (%.0f %%) less",
                            1e3 * number_of(line, field + "_s").value_or(0),
                            100 * number_of(line, field + "_share").value_or(0));
      if (who != slow.who) marks_.push_back({line.point(0), "slow", slow.text});
      slow.until = line.step;
    }
    slow.who = who;
  }

  std::vector<Ordered> charts_;
  std::map<std::string, std::optional<Shown>> places_;
  std::vector<Mark> marks_;
  const std::vector<RunEvent>& events_;
  std::vector<std::int64_t> hosts_;  // of replicas
  std::size_t next_event_ = 0;
  const RunEvent* start_ = nullptr;  // the last one so far
  double skipped_ = 0;
  Slow slow_replica_;
  Slow slow_link_;
  Point last_ = {};                  // where the line before was
  std::optional<double> last_time_;  // and when
};

// The values of what result.json has in objects, by names such as "memory.measured.host".
void add_fields(const Json& json, const std::string& name, Fields& fields) {
  if (!json.is_object()) {
    fields.emplace_back(name, json);
    return;
  }
  for (const auto& [key, value] : json.items()) {
    add_fields(value, name.empty() ? key : str(name, ".", key), fields);
  }
}

// The rows of the fields below `section`, each with what is left of its name. They are taken out.
std::vector<std::pair<std::string, Json>> taken(Fields& fields, const std::string& section) {
  Fields rows;
  std::erase_if(fields, [&](const auto& field) {
    if (!field.first.starts_with(section)) return false;
    rows.emplace_back(field.first.substr(section.size()), field.second);
    return true;
  });
  return rows;
}

// What each replica's and the host's memory was predicted to be, and was.
Table memory_table(Fields& fields) {
  Table table{"Memory", {"bytes", "predicted", "measured"}};
  const auto text = [](const Json& bytes) {
    return bytes.is_number() ? text_of_bytes(bytes.get<double>()) : shown_text(bytes);
  };
  const Fields measured = taken(fields, "memory.measured.");
  for (const auto& [name, bytes] : taken(fields, "memory.predicted.")) {
    const auto same = std::ranges::find(measured, name, &Fields::value_type::first);
    table.rows.push_back({name == "host" ? "all of the host" : "of a replica: " + shown(name),
                          text(bytes), same == measured.end() ? "" : text(same->second)});
  }
  for (const auto& [name, bytes] : taken(fields, "memory.")) {
    table.rows.push_back({shown(name), "", text(bytes)});
  }
  return table;
}

// Of a series; none without it.
std::optional<double> mean_of(const RunRecord& run, const std::string& name) {
  const auto series = run.series.find(name);
  return series == run.series.end() ? std::nullopt : series->second.mean();
}

// "4.31 ms"; "" where it is not known.
std::string seconds_text(std::optional<double> seconds) {
  if (!seconds) return "";
  return *seconds < 1 ? formatted("%.3g ms", 1e3 * *seconds) : formatted("%.4g s", *seconds);
}

// A host's replicas.
struct HostWork {
  std::int64_t replicas = 0;
  double bytes = 0;
  std::optional<double> own = 0;  // sums; none where one's is not known
  std::optional<double> waiting = 0;

  [[nodiscard]] std::string mean_text(std::optional<double> sum) const {
    if (sum) *sum /= static_cast<double>(replicas);
    return seconds_text(sum);
  }
};

// Who has computed, who has waited and what memory each took: the replicas and, of a job on
// several hosts, these.
std::vector<Table> tables_of_replicas(const RunRecord& run, const std::vector<RunEvent>& events,
                                      Fields& fields) {
  const std::vector<std::int64_t> known_hosts = hosts_of_replicas(events);
  (void)taken(fields, "replica_hosts");
  Table replicas{"Replicas",
                 {"replica", "host", "own work in a step", "waiting in a step", "memory"}};
  Table hosts{
      "Hosts",
      {"host", "replicas", "own work of one in a step", "waiting of one in a step", "memory"}};
  std::map<std::int64_t, HostWork> of_hosts;
  const Fields taken_out = taken(fields, "memory.replicas");
  const Json memory = taken_out.empty() ? Json::array() : taken_out.front().second;
  for (std::size_t i = 0;; ++i) {
    const auto name = [&](const char* field) { return str(field, ".", i); };
    const bool has_memory = memory.is_array() && i < memory.size() && memory[i].is_object();
    if (!has_memory && !run.series.contains(name(kReplicaOwn))) break;
    const auto own = mean_of(run, name(kReplicaOwn));
    const auto waiting = mean_of(run, name(kReplicaWaiting));
    std::optional<std::int64_t> host;
    if (i < known_hosts.size()) host = known_hosts[i];
    const auto number = [&](const char* field) {
      const Json value = memory[i].value(field, Json(0));
      require<DataError>(value.is_number(), (run.folder / "result.json").string(),
                         " is damaged: memory.replicas.", i, ".", field, " is ", cut(value.dump()));
      return value.get<double>();
    };
    if (has_memory) host = static_cast<std::int64_t>(number("host"));
    const double bytes = has_memory ? number("resident") : 0;
    replicas.rows.push_back({str(i), host ? str(*host) : "", seconds_text(own),
                             seconds_text(waiting), has_memory ? text_of_bytes(bytes) : ""});
    if (!host) continue;
    HostWork& its = of_hosts[*host];
    ++its.replicas;
    its.bytes += bytes;
    its.own = its.own && own ? std::optional(*its.own + *own) : std::nullopt;
    its.waiting = its.waiting && waiting ? std::optional(*its.waiting + *waiting) : std::nullopt;
  }
  for (const auto& [host, its] : of_hosts) {
    hosts.rows.push_back({str(host), str(its.replicas), its.mean_text(its.own),
                          its.mean_text(its.waiting),
                          its.bytes > 0 ? text_of_bytes(its.bytes) : ""});
  }
  if (replicas.rows.size() < 2) replicas.rows.clear();
  if (hosts.rows.size() < 2) hosts.rows.clear();
  return {std::move(replicas), std::move(hosts)};
}

// What the run's result says of how it ran, or else the start of it that was the last.
Json circumstances(const RunRecord& run, const std::vector<RunEvent>& events) {
  if (run.result.is_object()) return run.result;
  for (const RunEvent& event : std::views::reverse(events)) {
    if (event.name != "started") continue;
    Json fields = event.fields;
    for (const char* own : {"time", "event", "steps"}) fields.erase(own);
    return fields;
  }
  return Json::object();
}

std::vector<Table> tables_of(const RunRecord& run, const std::vector<RunEvent>& events) {
  Fields fields;
  add_fields(circumstances(run, events), "", fields);
  (void)taken(fields, "eval.");  // the test set's other name
  Table figures{"Figures", {"set", "figure", "value"}};
  for (const char* set : {"test", "validation", "test_best", "best.validation", "best"}) {
    for (const auto& [name, value] : taken(fields, str(set, "."))) {
      figures.rows.push_back({shown(set), shown(name), shown_text(value)});
    }
  }
  std::vector<Table> replicas = tables_of_replicas(run, events, fields);
  Table memory = memory_table(fields);
  Table parameters{"Parameters", {"name", "value"}};
  for (const auto& [name, value] : taken(fields, "parameters.")) {
    parameters.rows.push_back({name, shown_text(value)});
  }
  Table rest{"How it ran", {"what", "value"}};
  for (const auto& [name, value] : fields) rest.rows.push_back({shown(name), shown_text(value)});
  Table config{"Config", {"key", "value"}};
  for (const auto& [key, value] : run.config) config.rows.push_back({key, value});
  std::vector<Table> tables = evaluation_tables(run.folder, run.end.step);
  tables.insert(tables.begin(), std::move(figures));
  for (Table* each : {&replicas[0], &replicas[1], &memory, &parameters, &rest, &config}) {
    tables.push_back(std::move(*each));
  }
  std::erase_if(tables, [](const Table& table) { return table.rows.empty(); });
  return tables;
}

std::vector<std::pair<std::string, std::string>> facts_of(const RunRecord& run,
                                                          const std::string& status,
                                                          const Charts& charts) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"status", status.empty() ? name_of(run.status) : status}};
  facts.emplace_back("step", str(run.end.step));
  facts.emplace_back("time", duration_text(run.end.elapsed_s));
  for (const Figure& figure : figures_of(run))
    facts.emplace_back(shown(figure.name), shown_figure(run, figure));
  for (const auto& [name, text] : {std::pair{"slow replica", charts.slow_replica_text()},
                                   std::pair{"slow link", charts.slow_link_text()}}) {
    if (!text.empty()) facts.emplace_back(name, text);
  }
  if (run.checkpoint) facts.emplace_back("newest checkpoint", str("step ", *run.checkpoint));
  const auto replicas = run.config.find("parallel.replicas");
  if (replicas != run.config.end()) facts.emplace_back("replicas", replicas->second);
  return facts;
}

// The folder's own name, also of "." and of "runs/a/".
std::string title_of(const fs::path& run) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(run, error);
  return (error ? run : whole).filename().string();
}

}  // namespace

Page report_of(const fs::path& run, const std::string& status) {
  const std::vector<RunEvent> events = read_events(run);
  Charts charts(events);
  const RunRecord record = read_run(run, [&](const MetricsLine& line) { charts.add(line); });
  charts.finish();
  return {.title = title_of(run),
          .facts = facts_of(record, status, charts),
          .charts = charts.charts(),
          .marks = charts.marks(),
          .tables = tables_of(record, events)};
}

void write_report(const fs::path& run, const fs::path& file, const std::string& status) {
  write_file_atomically(file, page_text(report_of(run, status)));
}

}  // namespace lockstep::report
