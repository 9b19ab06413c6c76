#include "trainers/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

namespace lockstep::bench {
namespace {

constexpr double kBatchSeconds = 3e-3;
constexpr std::chrono::seconds kCaseTime{2};
constexpr std::int64_t kFewest = 5;
constexpr std::int64_t kMost = 25;
constexpr double kMostCalls = 100'000;

// Calls that take about as long as a batch should. The first ones may be slow for reasons of their
// own: what is asked for at once is never more than ten times of what has been seen.
std::int64_t calls_of_batch(Workers& workers) {
  double calls = 1;
  while (true) {
    const double seconds = workers.run(static_cast<std::int64_t>(calls)).seconds;
    const double wanted = std::clamp(std::round(kBatchSeconds * calls / seconds), 1.0, kMostCalls);
    if (seconds >= kBatchSeconds / 2 || wanted <= 2 * calls)
      return static_cast<std::int64_t>(wanted);
    calls = std::min(wanted, 10 * calls);
  }
}

}  // namespace

std::vector<Measurement> measure(const Crew& systems, const std::string& operation,
                                 std::int64_t bytes, std::int64_t repetitions) {
  std::vector<Measurement> measurements;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    Measurement& measurement = measurements.emplace_back();
    measurement.label = systems[i].system().label;
    measurement.note = systems[i].prepare(operation, bytes);
    measurement.calls = calls_of_batch(systems[i]);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto enough = [&](std::int64_t done) {
    if (repetitions > 0) return done == repetitions;
    return done == kMost ||
           (done >= kFewest && std::chrono::steady_clock::now() - begin > kCaseTime);
  };
  for (std::int64_t repetition = 0; !enough(repetition); ++repetition) {
    for (std::size_t i = 0; i < systems.size(); ++i) {
      const std::size_t turn = (i + static_cast<std::size_t>(repetition)) % systems.size();
      Measurement& measurement = measurements[turn];
      measurement.samples.push_back(systems[turn].run(measurement.calls).seconds /
                                    static_cast<double>(measurement.calls));
    }
  }
  for (Measurement& measurement : measurements)
    measurement.seconds = quartiles(measurement.samples);
  return measurements;
}

}  // namespace lockstep::bench
