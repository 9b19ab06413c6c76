#include "trainers/run/peak.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include "framework/base/cores.h"
#include "framework/base/text.h"
#include "framework/replicas/machine.h"
#include "framework/watch/recorder.h"
#include "trainers/bench/measuring/progress_line.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"
#include "trainers/bench/session.h"
#include "trainers/bench/systems/system.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kProductRows = 2048;
constexpr double kProductFlops = 2.0 * kProductRows * kProductRows * kProductRows;

Measurement product_of(at::ScalarType type, std::int64_t repetitions) {
  const at::Tensor a = at::full({kProductRows, kProductRows}, 0.5, type);
  at::Tensor out = at::empty_like(a);
  Measurement measurement{.system = {.name = "product",
                                     .label = "product",
                                     .version = counted(usable_cores(), "math thread"),
                                     .own = true}};
  at::mm_out(out, a, a);  // makes threads and their memory
  for (std::int64_t i = 0; i < repetitions; ++i) {
    const std::uint64_t begin = watch::recorder_now();
    at::mm_out(out, a, a);
    measurement.samples.push_back(static_cast<double>(watch::recorder_now() - begin) * 1e-9);
  }
  return measurement;
}

}  // namespace

std::string run_peak(const Workplace& /*workplace*/, const Options& options) {
  replicas::set_math_threads(usable_cores());
  const ProgressLine progress;
  PartsReport report{.measurement = "peak"};
  for (const auto& [name, type] : {std::pair("float32", at::kFloat), {"bfloat16", at::kBFloat16}}) {
    PartResult result{.name = name,
                      .what = str("a product of matrices of ", kProductRows, " x ", kProductRows),
                      .unit = "GFLOP",
                      .amount = kProductFlops * 1e-9,
                      .measurements = {product_of(type, options.few_repetitions())}};
    const Measurement& product = result.measurements.front();
    if (report.results.empty()) report.heading = begin_report({{product.system, {}}}, {});
    progress.print(result_text(result));
    const double peak = kProductFlops / std::ranges::min(product.samples);
    const auto file = keep_peak(type, peak);
    progress.print(str("The fastest has ", digits_text(peak * 1e-9), " GFLOP/s: part_of_peak in ",
                       "metrics is of these, kept in ", file.string(), "\n"));
    report.results.push_back(std::move(result));
  }
  return to_json(report);
}

}  // namespace lockstep::bench
