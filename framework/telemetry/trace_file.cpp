#include "framework/telemetry/trace_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/json_text.h"

namespace lockstep {
namespace {

using timeline::Recorder;
using timeline::SpanKind;
using timeline::Trace;

using Json = nlohmann::ordered_json;
using formats::json_at, formats::json_field;

// A text as it stands in JSON, whatever bytes it has.
std::string json_text(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// All nanoseconds, which a number of microseconds may have behind its point.
std::string microseconds(std::uint64_t nanoseconds) {
  return formatted("%llu.%03llu", static_cast<unsigned long long>(nanoseconds / 1000),
                   static_cast<unsigned long long>(nanoseconds % 1000));
}

std::string hexadecimal_of(std::uint64_t id) {
  return "0x" + hexadecimal(id, 16);
}

bool moves_bytes(SpanKind kind) {
  return kind == SpanKind::collective || kind == SpanKind::reduction || kind == SpanKind::gather;
}

std::string label_of(const Recorder::Span& span) {
  if (!span.name.empty()) return span.name;
  return span.kind == SpanKind::step ? str("step ", span.id) : timeline::name_of(span.kind);
}

void for_each_span(const Trace::Host& host, const auto& call) {
  for (const timeline::ReplicaRecording& recording : host.replicas) {
    for (const Recorder::Recording& track : recording.tracks) {
      for (const Recorder::Span& span : track.spans) call(recording.replica, span);
    }
  }
}

// The numbers of transfers' threads are so much larger than those of the replicas that they go to.
constexpr std::size_t kTransfers = 100'000;

// The events of a trace's file.
class TraceText {
 public:
  explicit TraceText(const Trace& trace) : begin_(begin_of(trace)) {
    std::vector<Json> tracks;
    const timeline::StepTimes times = trace.step_times();
    slow_replica_ = times.slow();
    slow_link_ = timeline::slow_link(trace.link_rates(), times.paces());
    for (std::size_t host = 0; host < trace.hosts.size(); ++host) {
      add_host(host, trace.hosts[host], tracks);
    }
    for (const auto& [id, arrivals] : calls_) add_flow(id, arrivals);
    Json other{{"lockstep_trace", 1},
               {"first_step", trace.first},
               {"last_step", trace.last},
               {"clock", "host 0's; microseconds since the first event"},
               {"versions", Json::object()},
               {"hosts", Json::array()},
               {"tracks", tracks}};
    for (const auto& [name, version] : trace.versions) other["versions"][name] = version;
    for (const Trace::Host& host : trace.hosts) {
      other["hosts"].push_back({{"name", host.name},
                                {"clock_offset_ns", host.offset},
                                {"clock_error_ns", host.error},
                                {"is_cut", host.is_cut}});
    }
    text_ = str("{\"displayTimeUnit\":\"ms\",\n\"otherData\":",
                other.dump(-1, ' ', false, Json::error_handler_t::replace), ",\n\"traceEvents\":[",
                text_, "\n]}\n");
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  struct Thread {
    std::size_t process = 0;
    std::size_t number = 0;
  };
  struct Arrival {
    std::uint64_t at = 0;
    Thread thread = {};
    std::string name = {};
  };

  static std::uint64_t begin_of(const Trace& trace) {
    auto begin = std::numeric_limits<std::uint64_t>::max();
    for (const Trace::Host& host : trace.hosts) {
      for_each_span(host, [&](int /*replica*/, const Recorder::Span& span) {
        begin = std::min(begin, span.begin);
      });
      for (const Trace::Memory& memory : host.memory) begin = std::min(begin, memory.at);
    }
    return begin;
  }

  // `rest` has further members, each behind a comma.
  void add(char phase, const Thread& thread, const std::string& name, const std::string& rest) {
    text_ += text_.empty() ? "\n" : ",\n";
    text_ += str("{\"ph\":\"", phase, "\",\"pid\":", thread.process, ",\"tid\":", thread.number,
                 ",\"name\":", json_text(name), rest, "}");
  }
  void add_at(char phase, const Thread& thread, const std::string& name, std::uint64_t at,
              const std::string& rest) {
    add(phase, thread, name, ",\"ts\":" + microseconds(at - begin_) + rest);
  }
  // For those who look: "process_name" and the like.
  void describe(const Thread& thread, const std::string& what, const Json& args) {
    add('M', thread, what,
        ",\"args\":" + args.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  void add_host(std::size_t number, const Trace::Host& host, std::vector<Json>& tracks) {
    const Thread process{number + 1, 0};
    describe(process, "process_name", {{"name", str("host ", number, " ", host.name)}});
    describe(process, "process_sort_index", {{"sort_index", number}});
    if (number > 0) {
      describe(process, "process_labels",
               {{"labels", str("clock within ", microseconds(host.error), " us of host 0's")}});
    }
    for (const timeline::ReplicaRecording& recording : host.replicas) {
      const std::size_t thread = 10 * (static_cast<std::size_t>(recording.replica) + 1);
      std::map<std::uint64_t, Recorder::Recording> from;  // other hosts: these may overlap
      for (std::size_t i = 0; i < recording.tracks.size(); ++i) {
        Recorder::Recording track = recording.tracks[i];
        std::erase_if(track.spans, [&](const Recorder::Span& span) {
          if (span.kind != SpanKind::transfer) return false;
          from.try_emplace(
                  span.id,
                  Recorder::Recording{.track = str("from host ", span.id), .begun = 0, .spans = {}})
              .first->second.spans.push_back(span);
          return true;
        });
        const bool is_slow = track.track == "replica" && slow_replica_ &&
                             slow_replica_->replica == recording.replica;
        add_track({process.process, thread + i}, recording.replica, track, is_slow, tracks);
      }
      for (const auto& [sender, track] : from) {
        const timeline::HostLink link(static_cast<int>(sender), static_cast<int>(number));
        add_track({process.process, kTransfers * thread + sender}, recording.replica, track,
                  slow_link_ && slow_link_->has(link), tracks);
      }
    }
    add_moved_bytes(process, host);
    for (const Trace::Memory& memory : host.memory) {
      add_at('C', process, str("memory of worker ", memory.worker), memory.at,
             str(",\"args\":{\"bytes\":", memory.bytes, "}"));
    }
  }

  void add_track(const Thread& thread, int replica, const Recorder::Recording& recording,
                 bool is_slow, std::vector<Json>& tracks) {
    if (recording.spans.empty()) return;
    const std::string& name = recording.track;
    tracks.push_back(
        {{"pid", thread.process}, {"tid", thread.number}, {"replica", replica}, {"track", name}});
    describe(thread, "thread_name",
             {{"name", str("replica ", replica, name == "replica" ? "" : ": " + name,
                           is_slow ? " (slow)" : "")}});
    describe(thread, "thread_sort_index", {{"sort_index", thread.number}});
    for (const Recorder::Span& span : recording.spans) add_span(thread, replica, span);
  }

  void add_span(const Thread& thread, int replica, const Recorder::Span& span) {
    std::string rest;
    if (span.end != 0) rest = ",\"dur\":" + microseconds(span.end - span.begin);
    rest += str(",\"cat\":\"", timeline::name_of(span.kind), "\",\"args\":{\"id\":\"",
                hexadecimal_of(span.id), "\",\"bytes\":", span.bytes,
                ",\"name\":", json_text(span.name), "}");
    add_at(span.end != 0 ? 'X' : 'B', thread, label_of(span), span.begin, rest);
    if (!moves_bytes(span.kind) || span.id == 0) return;
    // A replica that has several spans of a call comes to it with the first of them.
    Arrival& arrival = calls_[span.id]
                           .try_emplace(replica, Arrival{span.begin, thread, label_of(span)})
                           .first->second;
    if (span.begin < arrival.at) arrival = {span.begin, thread, label_of(span)};
  }

  void add_flow(std::uint64_t id, const std::map<int, Arrival>& arrivals) {
    if (arrivals.size() < 2) return;
    const auto time = [](const auto& entry) { return entry.second.at; };
    const auto [first, last] = std::ranges::minmax_element(arrivals, {}, time);
    const std::string rest = str(",\"cat\":\"call\",\"id\":\"", hexadecimal_of(id), "\"");
    const Arrival& from = first->second;
    const Arrival& to = last->second;
    add_at('s', from.thread, from.name, from.at, rest);
    add_at('f', to.thread, from.name, to.at, rest + ",\"bp\":\"e\"");
  }

  // How many bytes each replica moves at a time. Of spans inside of others, and of the wait for a
  // call that goes on beside it, these are the same ones: the largest counts.
  void add_moved_bytes(const Thread& process, const Trace::Host& host) {
    std::map<int, std::map<std::uint64_t, std::vector<std::pair<bool, std::uint64_t>>>>
        changes;  // by replica and time
    for_each_span(host, [&](int replica, const Recorder::Span& span) {
      if (!moves_bytes(span.kind) || span.bytes == 0) return;
      auto& its = changes[replica];
      its[span.begin].emplace_back(true, span.bytes);
      if (span.end != 0) its[span.end].emplace_back(false, span.bytes);
    });
    for (const auto& [replica, its] : changes) {
      std::multiset<std::uint64_t> moved;
      std::uint64_t told = 0;
      for (const auto& [at, all] : its) {
        for (const auto& [begins, bytes] : all) {
          if (begins) moved.insert(bytes);
        }
        for (const auto& [begins, bytes] : all) {
          if (!begins) moved.erase(moved.find(bytes));
        }
        const std::uint64_t now = moved.empty() ? 0 : *moved.rbegin();
        if (now == std::exchange(told, now)) continue;
        add_at('C', process, str("bytes moved by replica ", replica), at,
               str(",\"args\":{\"bytes\":", now, "}"));
      }
    }
  }

  std::uint64_t begin_;
  std::optional<timeline::SlowReplica> slow_replica_;
  std::optional<timeline::SlowLink> slow_link_;
  std::string text_;
  std::map<std::uint64_t, std::map<int, Arrival>> calls_;  // by id and replica
};

// Reads what TraceText has written, from what anybody may have written. What does not fit is a
// DataError.
class TraceReading {
 public:
  [[nodiscard]] Trace read(const Json& file) {
    const Json& other = json_at(file, "otherData");
    require<DataError>(number(json_at(other, "lockstep_trace"), 1) == 1, "it has another version");
    trace_.first = number(json_at(other, "first_step"));
    trace_.last = number(json_at(other, "last_step"));
    trace_.versions = json_field<std::map<std::string, std::string>>(other, "versions");
    for (const Json& each : json_at(other, "hosts")) {
      Trace::Host& host = trace_.hosts.emplace_back();
      host.name = json_field<std::string>(each, "name");
      const Json& offset = json_at(each, "clock_offset_ns");
      require<DataError>(offset.is_number_integer(), "a clock's offset is no whole number");
      host.offset = offset.get<std::int64_t>();
      host.error = static_cast<std::uint64_t>(number(json_at(each, "clock_error_ns")));
      host.is_cut = json_field<bool>(each, "is_cut");
    }
    for (const Json& each : json_at(other, "tracks")) add_track(each);
    for (const Json& event : json_at(file, "traceEvents")) add_event(event);
    return std::move(trace_);
  }

 private:
  // A whole number from 0 to `most`.
  static std::int64_t number(const Json& json,
                             std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    require<DataError>(json.is_number_integer(), "expected a whole number, found ",
                       cut(json.dump()));
    const bool is_large =
        json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
    const auto value = is_large ? -1 : json.get<std::int64_t>();
    require<DataError>(value >= 0 && value <= most, cut(json.dump()), " is not from 0 to ", most);
    return value;
  }

  static std::uint64_t nanoseconds(const Json& json) {
    const double time = json.is_number() ? json.get<double>() : -1;
    require<DataError>(time >= 0 && time < 1e15, cut(json.dump()), " is no time");
    return static_cast<std::uint64_t>(std::llround(1000 * time));
  }

  void add_track(const Json& json) {
    const auto hosts = static_cast<std::int64_t>(trace_.hosts.size());
    const std::int64_t host = number(json_at(json, "pid"), hosts) - 1;
    require<DataError>(host >= 0, "a track's host is missing");
    Trace::Host& its = trace_.hosts[static_cast<std::size_t>(host)];
    constexpr std::int64_t kMostReplicas = 1'000'000;
    const auto replica = static_cast<int>(number(json_at(json, "replica"), kMostReplicas));
    auto recording = std::ranges::find(its.replicas, replica, &timeline::ReplicaRecording::replica);
    if (recording == its.replicas.end())
      recording = its.replicas.insert(recording, {.replica = replica});
    places_[{host + 1, number(json_at(json, "tid"))}] = {
        static_cast<std::size_t>(host), static_cast<std::size_t>(recording - its.replicas.begin()),
        recording->tracks.size()};
    recording->tracks.push_back(
        {.track = json_field<std::string>(json, "track"), .begun = 0, .spans = {}});
  }

  void add_event(const Json& event) {
    const std::string phase = json_field<std::string>(event, "ph");
    if (phase != "X" && phase != "B") return;
    const auto place = places_.find({number(json_at(event, "pid")), number(json_at(event, "tid"))});
    require<DataError>(place != places_.end(), "a span has a track that is not listed");
    const auto [host, replica, track] = place->second;
    Recorder::Recording& recording = trace_.hosts[host].replicas[replica].tracks[track];
    const std::string kind = json_field<std::string>(event, "cat");
    const Json& args = json_at(event, "args");
    Recorder::Span span{.number = ++recording.begun,
                        .kind = SpanKind::step,
                        .name = json_field<std::string>(args, "name"),
                        .begin = nanoseconds(json_at(event, "ts")),
                        .end = 0,
                        .bytes = static_cast<std::uint64_t>(number(json_at(args, "bytes"))),
                        .id = id_of(json_field<std::string>(args, "id"))};
    // The time 0 means that it has not ended.
    if (phase == "X")
      span.end = std::max<std::uint64_t>(span.begin + nanoseconds(json_at(event, "dur")), 1);
    while (timeline::name_of(span.kind) != kind) {
      require<DataError>(span.kind != last_of(span.kind), "no span is of the kind '", cut(kind),
                         "'");
      span.kind = static_cast<SpanKind>(static_cast<int>(span.kind) + 1);
    }
    recording.spans.push_back(std::move(span));
  }

  static std::uint64_t id_of(std::string_view text) {
    std::uint64_t id = 0;
    const bool fits = text.size() == 18 && text.starts_with("0x");
    for (const char digit : text.substr(fits ? 2 : 0)) {
      const std::size_t value = std::string_view("0123456789abcdef").find(digit);
      require<DataError>(fits && value < 16, "'", cut(text), "' is no id");
      id = 16 * id + value;
    }
    return id;
  }

  Trace trace_;
  // By the numbers of process and thread: host, place of its replica there, and track.
  std::map<std::pair<std::int64_t, std::int64_t>, std::array<std::size_t, 3>> places_;
};

}  // namespace

std::string trace_json(const Trace& trace) {
  return TraceText(trace).take();
}

Trace read_trace(const std::filesystem::path& path) {
  const FileBytes content = formats::open_data(path.string()).content();
  const std::string_view text(reinterpret_cast<const char*>(content.bytes.data()),
                              content.bytes.size());
  constexpr std::size_t kOfAByte = 12;  // memory that what was read of it takes, at most
  formats::require_memory(path.string(), kOfAByte * text.size(), "its spans take");
  std::string why;
  try {
    return TraceReading().read(formats::parse_json<Json>(text));
  } catch (const DataError& error) {
    why = error.what();
  }
  throw DataError(str(path.string(), " is no trace that train has written: ", why));
}

}  // namespace lockstep
