#include "framework/telemetry/failure_record.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/json_text.h"
#include "framework/storage/file.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using formats::json_at, formats::json_field;
using Event = FailureRecord::Event;
using Replica = FailureRecord::Replica;
using timeline::SpanKind;

constexpr const char* kFirst = "failure.json";
constexpr std::string_view kOthers = "failure.host-";
constexpr std::string_view kExtension = ".json";
// Lines of text for a verdict, and for replicas that have not all done the same.
constexpr std::size_t kVerdictLines = 3;
constexpr std::size_t kReplicaLines = 6;
constexpr double kLongOver = 0.1;  // seconds

bool is_call(const Event& event) {
  constexpr std::array kCalls{SpanKind::reduction, SpanKind::collective, SpanKind::gather};
  return std::ranges::count(kCalls, event.kind, timeline::name_of) > 0;
}

// A replica's last events: those that go on, whenever they have begun, and the newest of the rest.
Replica last_of(const timeline::ReplicaRecording& recording, std::uint64_t noticed) {
  struct Found {
    const std::string* track;
    const timeline::Recorder::Span* span;
  };
  std::vector<Found> all;
  for (const auto& track : recording.tracks) {
    for (const auto& span : track.spans) {
      // What came from other hosts is a part of calls, which stand there.
      if (span.kind != SpanKind::transfer) all.push_back({&track.track, &span});
    }
  }
  std::ranges::stable_sort(all, {}, [](const Found& found) { return found.span->begin; });
  struct Counts {
    std::size_t all = 0;
    std::size_t left = kFailureEvents;  // that may still be kept of those that are over
  };
  std::map<bool, Counts> counts;  // of operators, and of the rest, which these would push out
  for (const auto& [track, span] : all) {
    auto& [count, left] = counts[span->kind == SpanKind::operation];
    if (span->end != 0) ++count;
    if (span->end == 0 && left > 0) --left;
  }
  Replica replica{.replica = recording.replica};
  const auto since = [&](std::uint64_t time) {
    return static_cast<double>(static_cast<std::int64_t>(time - noticed)) * 1e-9;
  };
  for (const auto& [track, span] : all) {
    const bool has_step = !timeline::is_call(span->kind) && span->id != 0;
    if (has_step && span->kind != SpanKind::checkpoint && span->kind != SpanKind::evaluation) {
      replica.step = static_cast<std::int64_t>(span->id);
    }
    auto& [count, left] = counts[span->kind == SpanKind::operation];
    if (span->end != 0 && count-- > left) continue;
    Event event{.track = *track,
                .kind = name_of(span->kind),
                .name = span->name,
                .begin_s = since(span->begin),
                .end_s = std::nullopt,
                .bytes = span->bytes};
    if (span->end != 0) event.end_s = since(span->end);
    if (span->id != 0) event.id = has_step ? str(span->id) : hexadecimal(span->id, 16);
    replica.events.push_back(std::move(event));
  }
  return replica;
}

Json json_of(const Event& event) {
  Json json{{"track", event.track}, {"kind", event.kind}, {"begin_s", event.begin_s}};
  json["end_s"] = event.end_s ? Json(*event.end_s) : Json();
  if (!event.name.empty()) json["name"] = event.name;
  if (event.bytes > 0) json["bytes"] = event.bytes;
  if (!event.id.empty()) json["id"] = event.id;
  return json;
}

Event event_of(const Json& json) {
  Event event{.track = json_field<std::string>(json, "track"),
              .kind = json_field<std::string>(json, "kind"),
              .name = json_field<std::string>(json, "name", ""),
              .begin_s = json_field<double>(json, "begin_s"),
              .end_s = std::nullopt,
              .bytes = json_field<std::uint64_t>(json, "bytes", 0),
              .id = json_field<std::string>(json, "id", "")};
  if (!json_at(json, "end_s").is_null()) event.end_s = json_field<double>(json, "end_s");
  return event;
}

std::string utc_text(std::time_t now) {
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return {text.data(), size};
}

// What a replica did last: what goes on innermost, or else what has begun last.
const Event* last_event(const Replica& replica) {
  const Event* last = nullptr;
  for (const Event& event : replica.events) {
    const bool is_own = event.track == "replica";
    if (is_own && (last == nullptr || last->end_s || !event.end_s)) last = &event;
  }
  return last;
}

std::string text_of(const Event& event) {
  if (is_call(event) && !event.name.empty()) return event.name;
  const bool is_callback = event.kind == timeline::name_of(SpanKind::callback);
  return str("its ", event.kind, is_callback ? " " + event.name : "");
}

// Whether its replica has done something else since. A wait that the failure ends is no such.
bool is_long_over(const Event& event) {
  return event.end_s && *event.end_s < -kLongOver;
}

// The innermost that goes on of this kind.
const Event* open_event(const Replica& replica, SpanKind kind) {
  const Event* open = nullptr;
  for (const Event& event : replica.events) {
    if (event.kind == timeline::name_of(kind) && !event.end_s) open = &event;
  }
  return open;
}

std::string replicas_text(const std::vector<std::int64_t>& replicas) {
  return (replicas.size() == 1 ? "replica " : "replicas ") + join(replicas);
}

// Without how long it was.
std::string doing_text(const Replica& replica, const std::vector<const Replica*>& all) {
  const Event* const last = last_event(replica);
  if (last == nullptr) return "nothing is recorded";
  const bool is_stopped = open_event(replica, SpanKind::pause) != nullptr;
  std::string text = is_stopped ? "stopped by a signal, " : "";
  text += is_long_over(*last) ? "in code of its own since " : "in ";
  if (last->kind == timeline::name_of(SpanKind::step)) return text + "step " + last->id;
  text += text_of(*last);
  const Event* const operation = open_event(replica, SpanKind::operation);
  if (operation != nullptr) text += ", " + operation->name;
  if (replica.step) text += str(", step ", *replica.step);
  if (!is_call(*last) || last->id.empty() || is_long_over(*last)) return text;
  std::vector<std::int64_t> absent;
  for (const Replica* const other : all) {
    const bool has_come = std::ranges::count(other->events, last->id, &Event::id) > 0;
    if (!has_come && !other->events.empty()) absent.push_back(other->replica);
  }
  return absent.empty() ? text : text + ", to which " + replicas_text(absent) + " had not come";
}

// How long its last event was, and its last call before.
std::string rest_text(const Replica& replica) {
  const Event* const last = last_event(replica);
  if (last == nullptr) return "";
  const double since = is_long_over(*last) ? *last->end_s : last->begin_s;
  const double until = is_long_over(*last) ? 0 : last->end_s.value_or(0);
  std::string text = str(", for ", formatted("%.3f", until - since), " s");
  if (is_call(*last)) return text;
  const Event* before = nullptr;
  for (const Event& event : replica.events) {
    if (event.track == "replica" && is_call(event) && event.end_s) before = &event;
  }
  return before == nullptr ? text : text + "; its last call was " + text_of(*before);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

FailureRecord failure_record(const JobFailure& failure, const std::string& versions) {
  FailureRecord record{.time = utc_text(std::time(nullptr)),
                       .verdict = failure.verdict,
                       .versions = versions,
                       .starts_again = failure.starts_again,
                       .restarts = failure.restarts,
                       .host = failure.host,
                       .hosts = failure.hosts};
  for (const auto& recording : failure.replicas) {
    record.replicas.push_back(last_of(recording, failure.noticed));
  }
  return record;
}

void write_failure(const fs::path& folder, const FailureRecord& record) {
  Json json{{"verdict", record.verdict},   {"time", record.time},
            {"versions", record.versions}, {"starts_again", record.starts_again},
            {"restarts", record.restarts}, {"host", record.host},
            {"hosts", record.hosts}};
  json["replicas"] = Json::array();
  for (const Replica& replica : record.replicas) {
    Json its{{"replica", replica.replica}};
    its["step"] = replica.step ? Json(*replica.step) : Json();
    its["events"] = mapped(replica.events, json_of);
    json["replicas"].push_back(std::move(its));
  }
  std::error_code exists;
  fs::create_directories(folder, exists);
  const std::string name =
      record.host == 0 ? std::string(kFirst) : str(kOthers, record.host, kExtension);
  // Text that is not UTF-8, as of a replica's stderr, is no reason to lose the rest.
  write_file_atomically(folder / name,
                        json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::vector<fs::path> failure_files(const fs::path& folder) {
  std::map<std::int64_t, fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == kFirst) files.emplace(0, entry.path());
    if (!name.starts_with(kOthers) || !name.ends_with(kExtension)) continue;
    const std::size_t digits = name.size() - kOthers.size() - kExtension.size();
    const auto host = parse_number<std::int64_t>(name.substr(kOthers.size(), digits));
    if (host) files.emplace(*host, entry.path());
  }
  return mapped(files, [](const auto& file) { return file.second; });
}

FailureRecord read_failure(const fs::path& file) {
  const auto json = formats::parse_json<Json>(formats::text_in(file));
  try {
    FailureRecord record{.time = json_field<std::string>(json, "time"),
                         .verdict = json_field<std::string>(json, "verdict"),
                         .versions = json_field<std::string>(json, "versions"),
                         .starts_again = json_field<bool>(json, "starts_again"),
                         .restarts = json_field<std::int64_t>(json, "restarts"),
                         .host = json_field<std::int64_t>(json, "host"),
                         .hosts = json_field<std::int64_t>(json, "hosts")};
    for (const Json& its : json_at(json, "replicas")) {
      Replica replica{.replica = json_field<std::int64_t>(its, "replica")};
      if (!json_at(its, "step").is_null()) replica.step = json_field<std::int64_t>(its, "step");
      for (const Json& event : json_at(its, "events")) replica.events.push_back(event_of(event));
      record.replicas.push_back(std::move(replica));
    }
    return record;
  } catch (const DataError& error) {
    throw DataError(str(file.string(), " is damaged, or no record of a failure: ", error.what()));
  }
}

std::string failure_text(const std::vector<FailureRecord>& records) {
  const FailureRecord& first = records.front();
  std::string text = str("the job failed at ", first.time);
  if (first.restarts > 0) text += str(", started again ", counted(first.restarts, "time"));
  if (first.hosts > 1) text += str(", on ", first.hosts, " hosts");
  text += first.starts_again ? ", and was started again:\n" : ":\n";
  const std::vector<std::string> verdict = lines_of(first.verdict);
  for (std::size_t i = 0; i < std::min(verdict.size(), kVerdictLines); ++i) {
    text += "  " + verdict[i] + "\n";
  }
  if (verdict.size() > kVerdictLines) {
    text += str("  … and ", counted(verdict.size() - kVerdictLines, "more line"),
                " of \"verdict\" in ", kFirst, "\n");
  }
  std::vector<const Replica*> all;
  for (const FailureRecord& record : records) {
    for (const Replica& replica : record.replicas) all.push_back(&replica);
  }
  std::map<std::string, std::vector<const Replica*>> alike;
  std::vector<std::string> order;
  for (const Replica* const replica : all) {
    const std::string doing = doing_text(*replica, all);
    if (!alike.contains(doing)) order.push_back(doing);
    alike[doing].push_back(replica);
  }
  for (std::size_t i = 0; i < std::min(order.size(), kReplicaLines); ++i) {
    const auto& its = alike[order[i]];
    text += str(replicas_text(mapped(its, [](const Replica* each) { return each->replica; })), ": ",
                order[i], rest_text(*its.front()), "\n");
  }
  if (order.size() > kReplicaLines) {
    text += str("… and ", counted(order.size() - kReplicaLines, "more line"), " of replicas\n");
  }
  return text + first.versions + "\n";
}

}  // namespace lockstep
