#include "framework/watch/recorder.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "trainers/bench/measuring/progress_line.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"
#include "trainers/bench/session.h"
#include "trainers/bench/systems/system.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kCalls = 100'000;
constexpr std::int64_t kRepetitions = 25;

// The seconds that each of kCalls takes.
template <typename Call>
double seconds_of(const Call& call) {
  const std::uint64_t begin = watch::recorder_now();
  for (std::int64_t i = 0; i < kCalls; ++i) call();
  return static_cast<double>(watch::recorder_now() - begin) * 1e-9 / kCalls;
}

Measurement named(const std::string& label, const std::string& version) {
  return {.system = {.name = label, .label = label, .version = version, .own = true},
          .calls = kCalls};
}

}  // namespace

std::string run_recorder(const Workplace& /*workplace*/, const Options& options) {
  using watch::RecordedSpan;
  watch::Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  PartResult result{.name = "span",
                    .what = "a span that a replica records: where it begins and where it ends",
                    .measurements = {named("span", "in memory that replicas share"),
                                     named("clock", "read twice, as a span does")}};
  PartsReport report{.measurement = "recorder",
                     .heading = begin_report(mapped(result.measurements,
                                                    [](const Measurement& measurement) {
                                                      return System{measurement.system, {}};
                                                    }),
                                             {})};
  const std::int64_t repetitions = options.repetitions > 0 ? options.repetitions : kRepetitions;
  std::uint64_t ticks = 0;
  for (std::int64_t i = 0; i < repetitions; ++i) {
    result.measurements[0].samples.push_back(seconds_of([&] {
      const RecordedSpan span(track.get(), {.kind = watch::SpanKind::collective, .bytes = 8});
    }));
    result.measurements[1].samples.push_back(seconds_of([&] {
      ticks += watch::recorder_now();
      ticks += watch::recorder_now();
    }));
  }
  const ProgressLine progress;
  progress.print(result_text(result));
  report.results.push_back(result);
  return to_json(report);
}

}  // namespace lockstep::bench
