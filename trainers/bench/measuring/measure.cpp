#include "trainers/bench/measuring/measure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

constexpr double kMostCalls = 100'000;

// Calls that take about as long as a batch should. The first ones may be slow for reasons of their
// own: what is asked for at once is never more than ten times of what has been seen.
std::int64_t calls_of_batch(Workers& workers, double batch_seconds) {
  double calls = 1;
  while (true) {
    const double seconds = workers.run(static_cast<std::int64_t>(calls)).seconds;
    const double wanted = std::clamp(std::round(batch_seconds * calls / seconds), 1.0, kMostCalls);
    if (seconds >= batch_seconds / 2 || wanted <= 2 * calls)
      return static_cast<std::int64_t>(wanted);
    calls = std::min(wanted, 10 * calls);
  }
}

// A system's batches, added up to a measurement in the end.
struct Batches {
  Measurement measurement;
  std::vector<std::vector<double>> parts{};
  std::vector<double> sent{};

  void add(const Ran& ran, std::int64_t sent_bytes) {
    const auto calls = static_cast<double>(measurement.calls);
    measurement.samples.push_back(ran.seconds / calls);
    StepParts& turn = measurement.turns.emplace_back();
    parts.resize(ran.parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].push_back(ran.parts[i] / calls);
      if (i < turn.size()) turn[i] = parts[i].back();
    }
    sent.push_back(static_cast<double>(sent_bytes) / calls);
  }

  [[nodiscard]] Measurement result() const {
    Measurement result = measurement;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double median = quartiles(parts[i]).median;
      if (i < result.parts.size()) {
        result.parts[i] = median;
      } else {
        result.gradients_ready.push_back(median);
      }
    }
    result.sent_bytes = quartiles(sent).median;
    return result;
  }
};

constexpr const char* kFirstStep = "\nstep 1";

double seconds_to_first_step(const Workplace& workplace, const System& system,
                             const Launch& launch) {
  const testing::TemporaryFolder folder(workplace.folder());
  const Program program = system.programs(launch.replicas, folder.path()).at(0);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  double seconds = 0;
  const ProgramEnd end = workplace.run(program, [&](const std::string& output) {
    if (seconds == 0 && ("\n" + output).find(kFirstStep) != std::string::npos)
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  });
  const auto fail = [&](const std::string& what) {
    throw CommError(str(system.facts.label, ", ", counted(launch.replicas, "replica"), ": ", what,
                        "; it printed:\n", end.output));
  };
  if (end.silent) fail(str("has printed nothing for ", Workplace::kSilence.count(), " seconds"));
  // PyTorch 2.15's processes abort at times when they end, long after the step.
  if (end.status != 0 && (system.facts.own || seconds == 0)) fail("failed");
  if (seconds == 0) fail("made no step");
  if (end.output.find(launch.result) == std::string::npos)
    fail(str("did not print ", launch.result));
  return seconds;
}

}  // namespace

std::vector<Measurement> measure(const Crew& systems, const std::string& operation,
                                 std::int64_t amount, const Pace& pace) {
  std::vector<Batches> all(systems.size());
  for (std::size_t i = 0; i < systems.size(); ++i) {
    Measurement& measurement = all[i].measurement;
    measurement.system = systems[i].system().facts;
    measurement.note = systems[i].prepare(operation, amount);
    measurement.calls = calls_of_batch(systems[i], pace.batch_seconds);
  }
  const auto sent_bytes = [&] { return pace.sent_bytes ? pace.sent_bytes() : 0; };
  const auto begin = std::chrono::steady_clock::now();
  const auto enough = [&](std::int64_t done) {
    if (pace.repetitions > 0) return done == pace.repetitions;
    return done == pace.most ||
           (done >= pace.fewest && std::chrono::steady_clock::now() - begin > pace.case_time);
  };
  for (std::int64_t repetition = 0; !enough(repetition); ++repetition) {
    for (std::size_t i = 0; i < systems.size(); ++i) {
      const std::size_t turn = (i + static_cast<std::size_t>(repetition)) % systems.size();
      const std::int64_t before = sent_bytes();
      const Ran ran = systems[turn].run(all[turn].measurement.calls);
      all[turn].add(ran, sent_bytes() - before);
    }
  }
  return mapped(all, &Batches::result);
}

std::vector<Measurement> measure_launches(const Workplace& workplace,
                                          const std::vector<System>& systems, const Launch& launch,
                                          std::int64_t repetitions, const ProgressLine& progress) {
  auto measurements =
      mapped(systems, [](const System& system) { return Measurement{.system = system.facts}; });
  for (std::int64_t repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < systems.size(); ++i) {
      progress.show(str("launch ", repetition + 1, " of ", systems[i].facts.label));
      measurements[i].samples.push_back(seconds_to_first_step(workplace, systems[i], launch));
    }
  }
  return measurements;
}

}  // namespace lockstep::bench
