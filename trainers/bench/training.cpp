#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "trainers/bench/hosts.h"
#include "trainers/bench/measuring/machine.h"
#include "trainers/bench/measuring/measure.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"
#include "trainers/bench/session.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kLaunchedReplicas = 4;
constexpr const char* kPmeanOfFour = "w = 2.625";  // what the pmean example ends with

// Without others there is nothing to average, and a peer's step is its plain loop. With others,
// and a core for each on one host, efficiency compares them with one replica of the same turns.
std::vector<System> systems_for(const std::vector<System>& all, const std::string& model,
                                std::int64_t replicas, std::int64_t cores, const Hosts& hosts) {
  std::vector<System> systems;
  std::vector<System> singles;
  bool own = false;
  for (const System& system : all) {
    const SystemFacts& facts = system.facts;
    const bool averages = facts.name == "ddp" || facts.name == "zero" || facts.name == "fsdp";
    if (!takes_images(model) && facts.label.find(kAugmentedSuffix) != std::string::npos) continue;
    if (replicas > 1 || !averages) systems.push_back(system);
    if (averages || facts.label == kAlone || (facts.own && own)) continue;
    own = own || facts.own;
    System& single = singles.emplace_back(system);
    single.facts.name = kSingle;
    single.facts.label += kSingleSuffix;
    single.replicas = 1;
  }
  if (hosts.facts().hosts > 1) return hosts.spread(systems);
  if (replicas > 1 && replicas <= cores)
    systems.insert(systems.end(), singles.begin(), singles.end());
  return systems;
}

TrainingResult measure_steps(const Workplace& workplace, const std::vector<System>& systems,
                             const std::string& model, std::int64_t replicas,
                             const Options& options, std::int64_t threads, const Hosts& hosts) {
  const std::vector<std::int64_t> parameters = parameters_of(model);
  const std::int64_t batch = options.batch > 0 ? options.batch : default_batch(model);
  TrainingResult result{.model = model,
                        .parameters = sum_of(parameters, std::identity()),
                        .replicas = replicas,
                        .batch = batch,
                        .limit = measure_memory_bandwidth(threads),
                        .network = hosts.facts(),
                        .gradient_bytes = mapped(parameters, [](std::int64_t count) {
                          return count * static_cast<std::int64_t>(sizeof(float));
                        })};
  Crew crew(workplace, systems, replicas);  // of its own, so that peaks of memory are this case's
  result.measurements = measure(crew, model, batch,
                                {.batch_seconds = 0.06,
                                 .repetitions = options.repetitions,
                                 .case_time = std::chrono::seconds(20),
                                 .fewest = 7,
                                 .sent_bytes = hosts.sent_bytes()});
  for (std::size_t i = 0; i < crew.size(); ++i) result.measurements[i].memory = crew[i].memory();
  crew.finish();
  return result;
}

// Each system alone: memory after the first step, and after all.
TrainingResult measure_growth(const Workplace& workplace, const std::vector<System>& systems,
                              const std::string& model, std::int64_t replicas,
                              const Options& options) {
  TrainingResult result{.model = model, .replicas = replicas, .limit = {}};
  for (const System& system : systems) {
    if (system.facts.name == kSingle) continue;
    Crew crew(workplace, {system}, replicas);
    (void)crew[0].prepare(model, options.batch > 0 ? options.batch : default_batch(model));
    (void)crew[0].run(1);
    const std::int64_t first = crew[0].memory().host_bytes;
    constexpr std::int64_t kAtOnce = 50;  // an answer may take two minutes
    for (std::int64_t left = options.steps - 1; left > 0; left -= kAtOnce) {
      (void)crew[0].run(std::min(left, kAtOnce));
    }
    Measurement& measurement = result.measurements.emplace_back(Measurement{system.facts});
    measurement.memory = crew[0].memory();
    measurement.memory.first_bytes = first;
    crew.finish();
  }
  return result;
}

}  // namespace

std::string run_training(const Workplace& workplace, const Options& options) {
  const Hosts hosts(options.network);
  std::vector<std::string> peers{"plain", "ddp", "zero", "fsdp"};
  if (options.network.hosts == 1) peers.emplace_back("torchrun");
  const Contestants contestants = find_contestants(
      workplace, options, training_systems(options.stages, options.launch, options.data), peers);
  std::vector<System> trained;
  std::vector<System> launched;
  for (const System& system : contestants.systems) {
    const bool launches = system.facts.label == kTrain || system.facts.name == "torchrun";
    if (!launches && (options.measures("steps") || options.measures("memory")))
      trained.push_back(system);
    if (launches && options.measures("launches")) launched.push_back(system);
  }
  std::vector<System> measured = trained;
  measured.insert(measured.end(), launched.begin(), launched.end());
  TrainingReport report{.heading = begin_report(measured, contestants.left_out),
                        .launched_replicas = kLaunchedReplicas,
                        .steps = options.steps};

  const ProgressLine progress;
  const std::int64_t cores = report.heading.machine.cores;
  for (const std::string& model : options.models) {
    for (const std::int64_t replicas : options.replicas) {
      const std::vector<System> systems = systems_for(trained, model, replicas, cores, hosts);
      if (systems.empty()) continue;
      progress.show(str(model, ": ", counted(std::ssize(systems), "system"), " of ",
                        counted(replicas, "replica")));
      if (options.measures("steps")) {
        report.results.push_back(measure_steps(workplace, systems, model, replicas, options,
                                               std::min(replicas, cores), hosts));
        progress.print(result_text(report.results.back()));
      }
      if (options.measures("memory")) {
        report.growths.push_back(measure_growth(workplace, systems, model, replicas, options));
        progress.print(growth_text(report.growths.back(), options.steps));
      }
    }
  }
  if (options.measures("launches")) {
    report.launches = measure_launches(workplace, launched, {kLaunchedReplicas, kPmeanOfFour},
                                       options.few_repetitions(), progress);
    progress.print(launches_text(report));
  }
  return to_json(report);
}

}  // namespace lockstep::bench
