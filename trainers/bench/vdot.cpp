#include <string>

#include "trainers/bench/measuring/measure.h"
#include "trainers/bench/measuring/progress_line.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"
#include "trainers/bench/session.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {

std::string run_vdot(const Workplace& workplace, const Options& options) {
  const auto [systems, left_out] = find_contestants(workplace, options, vdot_systems(), {"jax"});
  VdotReport report{.heading = begin_report(systems, left_out),
                    .replicas = kVdotReplicas,
                    .bytes = kVdotRows * kVdotColumns * static_cast<std::int64_t>(sizeof(float))};
  const ProgressLine progress;
  progress.show("vdot");
  Crew crew(workplace, systems, kVdotReplicas);
  report.measurements = measure(crew, "vdot", report.bytes, {.repetitions = options.repetitions});
  crew.finish();
  progress.print(vdot_text(report));
  return to_json(report);
}

}  // namespace lockstep::bench
