#include "trainers/bench/measuring/launches.h"

#include <chrono>
#include <cstddef>
#include <string>

#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

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

std::vector<Measurement> measure_launches(const Workplace& workplace,
                                          const std::vector<System>& systems, const Launch& launch,
                                          std::int64_t repetitions, const ProgressLine& progress) {
  std::vector<Measurement> measurements;
  for (const System& system : systems) measurements.push_back({.system = system.facts});
  for (std::int64_t repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < systems.size(); ++i) {
      progress.show(str("launch ", repetition + 1, " of ", systems[i].facts.label));
      measurements[i].samples.push_back(seconds_to_first_step(workplace, systems[i], launch));
    }
  }
  for (Measurement& measurement : measurements)
    measurement.seconds = quartiles(measurement.samples);
  return measurements;
}

}  // namespace lockstep::bench
