#include "trainers/bench/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "framework/base/wording.h"
#include "trainers/bench/contestants.h"
#include "trainers/bench/launches.h"
#include "trainers/bench/plot.h"
#include "trainers/bench/progress_line.h"
#include "trainers/bench/report_json.h"
#include "trainers/bench/report_text.h"
#include "trainers/bench/training_loop.h"
#include "trainers/bench/training_report.h"
#include "trainers/bench/training_systems.h"

namespace lockstep::bench {
namespace {

constexpr double kSampleSeconds = 0.06;
constexpr std::chrono::seconds kCaseTime{20};
constexpr std::int64_t kFewest = 7;
constexpr std::int64_t kMost = 25;
constexpr std::int64_t kLaunches = 5;

// What is known of a system's samples while they are taken.
struct Samples {
  Measurement step;
  std::vector<std::vector<double>> parts{kStepPartNames.size()};

  void add(const Ran& ran) {
    const auto calls = static_cast<double>(step.calls);
    step.samples.push_back(ran.seconds / calls);
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].push_back(ran.parts.at(i) / calls);
  }

  [[nodiscard]] StepMeasurement result(const System& system, const MemoryUse& memory) {
    StepMeasurement measurement{.name = system.name, .step = step, .parts = {}, .memory = memory};
    measurement.step.seconds = quartiles(step.samples);
    for (std::size_t i = 0; i < parts.size(); ++i)
      measurement.parts[i] = quartiles(parts[i]).median;
    return measurement;
  }
};

// Every system in turn, again and again, beginning with another one each time.
std::vector<StepMeasurement> measure_steps(const Crew& crew, const std::string& model,
                                           const TrainingOptions& options) {
  std::vector<Samples> all(crew.size());
  for (std::size_t i = 0; i < crew.size(); ++i) {
    Measurement& step = all[i].step;
    step.label = crew[i].system().label;
    step.note = crew[i].prepare(model, options.batch);
    step.calls = std::max(std::int64_t{1},
                          std::int64_t{std::lround(2 * kSampleSeconds / crew[i].run(2).seconds)});
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto enough = [&](std::int64_t done) {
    if (options.repetitions > 0) return done == options.repetitions;
    return done == kMost ||
           (done >= kFewest && std::chrono::steady_clock::now() - begin > kCaseTime);
  };
  for (std::int64_t repetition = 0; !enough(repetition); ++repetition) {
    for (std::size_t i = 0; i < crew.size(); ++i) {
      const std::size_t turn = (i + static_cast<std::size_t>(repetition)) % crew.size();
      all[turn].add(crew[turn].run(all[turn].step.calls));
    }
  }
  std::vector<StepMeasurement> measurements;
  for (std::size_t i = 0; i < crew.size(); ++i)
    measurements.push_back(all[i].result(crew[i].system(), crew[i].memory()));
  return measurements;
}

System single(System system) {
  system.name = kSingle;
  system.label += kSingleSuffix;
  system.replicas = 1;
  return system;
}

// Without others there is nothing to average, and a peer's step is its plain loop. With others,
// and a core for each, efficiency compares them with one replica of the same turns.
std::vector<System> systems_for(const std::vector<System>& all, std::int64_t replicas,
                                std::int64_t cores) {
  std::vector<System> systems;
  std::vector<System> singles;
  bool own = false;
  for (const System& system : all) {
    const bool trains_alone = system.name == "plain" || (system.own && system.label != kAlone);
    if (replicas > 1 || (system.name != "ddp" && system.name != "zero")) systems.push_back(system);
    if (!trains_alone || (system.own && own)) continue;
    own = own || system.own;
    singles.push_back(single(system));
  }
  if (replicas > 1 && replicas <= cores)
    systems.insert(systems.end(), singles.begin(), singles.end());
  return systems;
}

void measure_training(const Workplace& workplace, const std::vector<System>& systems,
                      const TrainingOptions& options, TrainingReport& report,
                      ProgressLine& progress) {
  for (const std::string& model : options.models) {
    for (const std::int64_t replicas : options.replicas) {
      const std::vector<System> now = systems_for(systems, replicas, report.machine.cores);
      if (now.empty()) continue;
      progress.show(str(model, ": starting ", counted(std::ssize(now), "system"), " of ",
                        counted(replicas, "replica")));
      TrainingResult result{
          .model = model,
          .parameters = parameters_of(model),
          .replicas = replicas,
          .batch = options.batch,
          .limit = measure_memory_bandwidth(std::min(replicas, report.machine.cores)),
          .measurements = {}};
      Crew crew(workplace, now, replicas);  // of its own, so that peaks of memory are this case's
      progress.show(str(model, ", ", counted(replicas, "replica")));
      result.measurements = measure_steps(crew, model, options);
      crew.finish();
      report.results.push_back(result);
      progress.clear();
      std::cout << result_text(report.results.back()) << std::flush;
    }
  }
}

}  // namespace

void run_training(const TrainingOptions& options) {
  const Workplace workplace;
  const Contestants contestants =
      find_contestants(workplace, options, {"lockstep"},
                       [&](const std::string&, std::vector<System>& systems) {
                         add_own_training_systems(options.stages, options.launch, systems);
                       },
                       {"plain", "ddp", "zero", "torchrun"});
  std::vector<System> trained;
  std::vector<System> launched;
  for (const System& system : contestants.systems) {
    (system.name == "torchrun" ? launched : trained).push_back(system);
  }
  if (std::any_of(trained.begin(), trained.end(), [](const System& system) { return system.own; }))
    launched.insert(launched.begin(), train_system());

  std::vector<System> measured;
  if (options.steps) measured = trained;
  if (options.launches) measured.insert(measured.end(), launched.begin(), launched.end());
  TrainingReport report{.machine = machine_facts(),
                        .systems = facts_of(measured),
                        .left_out = contestants.left_out,
                        .results = {},
                        .launched_replicas = kLaunchedReplicas,
                        .launches = {}};
  std::cout << heading_text(report.machine, report.systems, report.left_out) << std::endl;
  ProgressLine progress;
  if (options.steps) measure_training(workplace, trained, options, report, progress);
  if (options.launches) {
    report.launches = measure_launches(
        workplace, launched, options.repetitions > 0 ? options.repetitions : kLaunches, progress);
    progress.clear();
    std::cout << launches_text(report) << std::flush;
  }
  if (!options.json.empty()) write_file(options.json, to_json(report));
  if (!options.plot.empty()) write_file(options.plot, to_svg(report));
}

}  // namespace lockstep::bench
