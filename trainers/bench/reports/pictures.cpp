#include "trainers/bench/reports/pictures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "trainers/bench/reports/units.h"

namespace lockstep::bench {
namespace {

using charts::Axis;
using charts::Bar;
using charts::BarChart;
using charts::Line;
using charts::LineChart;
using charts::Panel;
using charts::Picture;

constexpr double kGiga = 1e-9;
constexpr double kMilliseconds = 1e3;

struct Extremes {
  double low = std::numeric_limits<double>::max();
  double high = 0;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string footer_of(const MachineFacts& machine) {
  return str(machine.cpu, ", ", counted(machine.cores, "core"), ", ", machine.date);
}

// "100 ns" for a power of ten of a second.
std::string power_text(double seconds) {
  const std::vector<const char*> units{"ns", "us", "ms", "s"};
  const auto power = static_cast<int>(std::lround(std::log10(seconds))) + 9;
  const auto unit = static_cast<std::size_t>(std::clamp(power / 3, 0, 3));
  return str(std::pow(10, power - 3 * static_cast<int>(unit)), ' ', units[unit]);
}

// A line for each of the report's systems; `point` makes one of a measurement.
template <typename MakePoint>
LineChart over_sizes(const CollectivesReport& report, const OperationResult& result,
                     const MakePoint& point) {
  Extremes sizes;
  for (const SizeResult& size : result.sizes) sizes.include(static_cast<double>(size.bytes));
  const auto bytes_text = [](double bytes) { return size_text(static_cast<std::int64_t>(bytes)); };
  LineChart chart{.x = charts::binary_axis(sizes.low, sizes.high, "size of the buffer", bytes_text),
                  .y = {}};
  const std::vector<SystemFacts>& systems = report.heading.systems;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    Line& line = chart.lines.emplace_back(Line{.style = {i, !systems[i].own}});
    for (const SizeResult& size : result.sizes)
      line.points.push_back(point(size, size.measurements[i]));
  }
  return chart;
}

LineChart time_chart(const CollectivesReport& report, const OperationResult& result) {
  Extremes times;
  LineChart chart = over_sizes(
      report, result, [&](const SizeResult& size, const Measurement& measurement) -> charts::Point {
        const auto& [lower, median, upper] = measurement.seconds;
        times.include(lower);
        times.include(upper);
        return {static_cast<double>(size.bytes), median, lower, upper};
      });
  chart.y = charts::decimal_axis(times.low, times.high, "time a call", power_text);
  return chart;
}

// The limit in the bus bandwidth's terms: what a system would have that moves nothing but what it
// must, at the memory's speed.
double limit_of_bus(const OperationResult& result) {
  constexpr std::int64_t kAny = 1 << 20;
  return result.limit.bytes_per_second * bus_bytes(result.operation, result.replicas, kAny) /
         moved_bytes(result.operation, result.replicas, kAny);
}

LineChart rate_chart(const CollectivesReport& report, const OperationResult& result) {
  Extremes rates;
  rates.include(1e-3);
  LineChart chart = over_sizes(
      report, result, [&](const SizeResult& size, const Measurement& measurement) -> charts::Point {
        const double rate = bus_bandwidth(result, size, measurement) * kGiga;
        rates.include(rate);
        return {.x = static_cast<double>(size.bytes), .y = rate};
      });
  if (result.replicas > 1) {
    chart.levels.push_back({limit_of_bus(result) * kGiga, "limit of the memory"});
    rates.include(chart.levels[0].value);
  }
  chart.y = charts::linear_axis(rates.high, "bus bandwidth, GB/s");
  return chart;
}

std::vector<charts::Note> collectives_notes(bool limited) {
  std::vector<charts::Note> notes{
      {"time a call",
       "markers are medians; the whisker through one reaches from the lower to the upper quartile, "
       "so that half of all samples lie within it. Solid lines are Lockstep's, dashed ones other "
       "libraries'."},
      {"bus bandwidth",
       "what must cross between N replicas over the median time: 2 (N-1)/N of the buffer for "
       "all_reduce, (N-1)/N for the others. It compares sizes, operations and numbers of "
       "replicas."}};
  if (limited) {
    notes.push_back(
        {"limit of the memory",
         "the dotted line is the bus bandwidth of a call that reads and writes in memory no more "
         "than it must, at the speed at which this machine was measured to copy buffers larger "
         "than any cache."});
    notes.push_back(
        {"above the limit",
         "a curve passes the limit where buffers stay in the processor's caches, which are faster "
         "than the memory. Buffers that do not fit there bring it down again."});
  }
  return notes;
}

Bar bar_of(const Measurement& measurement, double scale, std::vector<double> parts) {
  for (double& part : parts) part = std::max(part, 0.0) * scale;  // noise may be below zero
  return {.label = measurement.system.label,
          .back = !measurement.system.own,
          .parts = std::move(parts),
          .low = measurement.seconds.lower * scale,
          .high = measurement.seconds.upper * scale,
          .text = time_text(measurement.seconds.median)};
}

Panel bar_panel(const std::string& title, const std::string& axis, std::vector<Bar> bars) {
  double high = 1e-3;
  for (const Bar& bar : bars) high = std::max(high, bar.high);
  return {title, BarChart{.x = charts::linear_axis(high, axis), .bars = std::move(bars)}};
}

Panel step_panel(const TrainingResult& result) {
  std::vector<Bar> bars;
  for (const Measurement& measurement : result.measurements) {
    const StepParts parts = exposed_parts(result, measurement);
    if (!is_reference(measurement))
      bars.push_back(bar_of(measurement, kMilliseconds, {parts.begin(), parts.end()}));
  }
  Panel panel = bar_panel(str(result.model, ", ", counted(result.replicas, "replica")),
                          "a step, ms", std::move(bars));
  if (const std::optional<Floor> floor = floor_of(result))
    std::get<BarChart>(panel.chart).levels.push_back({floor->seconds() * kMilliseconds, "floor"});
  return panel;
}

// In the style that no part of a step has.
Panel launch_panel(const TrainingReport& report) {
  std::vector<Bar> bars;
  for (const Measurement& launch : report.launches) {
    std::vector<double> parts(kStepPartNames.size(), 0);
    parts.push_back(launch.seconds.median);
    bars.push_back(bar_of(launch, 1, std::move(parts)));
  }
  return bar_panel(str("launch to first step, ", report.launched_replicas, " processes"), "time, s",
                   std::move(bars));
}

std::vector<charts::Note> training_notes(bool steps, bool launches) {
  std::vector<charts::Note> notes;
  if (steps) {
    notes.push_back(
        {"bar",
         "the parts of a step, means over the replicas; fainter for PyTorch. Communication is what "
         "the step takes longer than data, and than forward, backward and update take alone. The "
         "number is the median of the whole step, up to the last replica's end, where the bar need "
         "not end."});
  }
  notes.push_back({"whisker",
                   "the thin line reaches from the lower to the upper quartile of the whole time, "
                   "so that half of all samples lie within it."});
  if (steps) {
    notes.push_back(
        {"floor",
         "the dotted line is forward and backward alone, and Adam's 28 bytes a parameter at the "
         "speed at which this machine's memory was measured to copy, each parameter updated once. "
         "A step can be faster where the parameters stay in caches, which are faster than the "
         "memory."});
  }
  if (launches)
    notes.push_back({"launch", "the median time from a program's start to its first step's end."});
  return notes;
}

}  // namespace

Picture picture_of(const CollectivesReport& report) {
  const bool limited =
      std::any_of(report.results.begin(), report.results.end(),
                  [](const OperationResult& result) { return result.replicas > 1; });
  Picture picture{.legend = {},
                  .notes = collectives_notes(limited),
                  .panels = {},
                  .footer = footer_of(report.heading.machine)};
  const std::vector<SystemFacts>& systems = report.heading.systems;
  for (std::size_t i = 0; i < systems.size(); ++i)
    picture.legend.push_back({{i, !systems[i].own}, systems[i].label});
  for (const OperationResult& result : report.results) {
    if (result.sizes.empty()) continue;
    picture.panels.push_back(
        {str(name_of(result.operation), ", ", counted(result.replicas, "replica")),
         time_chart(report, result)});
    picture.panels.push_back({"", rate_chart(report, result)});
  }
  return picture;
}

Picture picture_of(const TrainingReport& report) {
  const bool steps = !report.results.empty();
  const bool launches = !report.launches.empty();
  Picture picture{.legend = {},
                  .notes = training_notes(steps, launches),
                  .panels = {},
                  .footer = footer_of(report.heading.machine)};
  for (std::size_t i = 0; steps && i < kStepPartNames.size(); ++i)
    picture.legend.push_back({{i, false}, kStepPartNames[i]});
  for (const TrainingResult& result : report.results) picture.panels.push_back(step_panel(result));
  if (launches) picture.panels.push_back(launch_panel(report));
  return picture;
}

}  // namespace lockstep::bench
