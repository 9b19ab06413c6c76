#include "trainers/bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/wording.h"
#include "trainers/bench/chart.h"
#include "trainers/bench/units.h"

namespace lockstep::bench {
namespace {

constexpr double kWidth = 1080;
constexpr double kMargin = 24;
constexpr double kChartWidth = 420;
constexpr double kChartHeight = 300;
constexpr double kChartLeft[] = {96, 630};
constexpr double kLegendRow = 26;
constexpr std::size_t kLegendColumns = 4;
constexpr double kResultHeight = 440;  // title, charts and what is below them

struct Range {
  double low = std::numeric_limits<double>::max();
  double high = 0;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// Powers of two, few enough to be read, 1 KiB and 1 MiB among them.
Axis size_axis(const OperationResult& result) {
  Range range;
  for (const SizeResult& size : result.sizes) range.include(static_cast<double>(size.bytes));
  // A single size is in the middle.
  if (range.low == range.high) range = {range.low / 2, range.high * 2};
  const int octaves = static_cast<int>(std::log2(range.high / range.low));
  const int step = octaves > 10 ? 5 : octaves > 5 ? 2 : 1;
  Axis axis{.scale = {range.low, range.high, true}, .ticks = {}, .title = "size of the buffer"};
  for (int power = 0; power < 50; power += step) {
    const double bytes = std::exp2(power);
    if (bytes < range.low || bytes > range.high) continue;
    axis.ticks.push_back({bytes, size_text(static_cast<std::int64_t>(bytes))});
  }
  return axis;
}

Axis time_axis(const OperationResult& result) {
  Range range;
  for (const SizeResult& size : result.sizes) {
    for (const Measurement& measurement : size.measurements) {
      range.include(measurement.seconds.lower);
      range.include(measurement.seconds.upper);
    }
  }
  const int first = static_cast<int>(std::floor(std::log10(range.low)));
  const int last = std::max(first + 1, static_cast<int>(std::ceil(std::log10(range.high))));
  Axis axis{.scale = {std::pow(10, first), std::pow(10, last), true},
            .ticks = {},
            .title = "time a call"};
  for (int power = first; power <= last; ++power) {
    const std::vector<std::string> units{"ns", "us", "ms", "s"};
    const int unit = std::clamp((power + 9) / 3, 0, 3);
    axis.ticks.push_back({std::pow(10, power), str(std::pow(10, power + 9 - 3 * unit), ' ',
                                                   units[static_cast<std::size_t>(unit)])});
  }
  return axis;
}

Chart time_chart(const CollectivesReport& report, const OperationResult& result) {
  Chart chart{.x = size_axis(result), .y = time_axis(result), .lines = {}};
  for (std::size_t i = 0; i < report.systems.size(); ++i) {
    Line& line =
        chart.lines.emplace_back(Line{.style = i, .dashed = !report.systems[i].own, .points = {}});
    for (const SizeResult& size : result.sizes) {
      const Quartiles& seconds = size.measurements[i].seconds;
      line.points.push_back(
          {static_cast<double>(size.bytes), seconds.median, seconds.lower, seconds.upper});
    }
  }
  return chart;
}

// The limit in the bus bandwidth's terms: what a system would have that moves nothing but what it
// must, at the memory's speed.
double limit_of_bus(const OperationResult& result) {
  constexpr std::int64_t kAny = 1 << 20;
  return result.limit.bytes_per_second * bus_bytes(result.operation, result.replicas, kAny) /
         moved_bytes(result.operation, result.replicas, kAny);
}

Chart rate_chart(const CollectivesReport& report, const OperationResult& result) {
  constexpr double kGiga = 1e-9;
  Range range;
  Chart chart{.x = size_axis(result), .y = {}, .lines = {}};
  for (std::size_t i = 0; i < report.systems.size(); ++i) {
    Line& line =
        chart.lines.emplace_back(Line{.style = i, .dashed = !report.systems[i].own, .points = {}});
    for (const SizeResult& size : result.sizes) {
      const double rate = bus_bandwidth(result, size, size.measurements[i]) * kGiga;
      range.include(rate);
      line.points.push_back({.x = static_cast<double>(size.bytes), .y = rate});
    }
  }
  if (result.replicas > 1) {
    chart.levels.push_back({limit_of_bus(result) * kGiga, "limit of the memory"});
    range.include(chart.levels[0].y);
  }
  chart.y = linear_axis(std::max(range.high, 1e-3), "bus bandwidth, GB/s");
  return chart;
}

}  // namespace

std::string to_svg(const CollectivesReport& report) {
  const auto& systems = report.systems;
  double top = kMargin;
  std::string svg;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    const auto row = static_cast<double>(i / kLegendColumns);
    const auto column = static_cast<double>(i % kLegendColumns);
    svg += legend_entry_svg(i, !systems[i].own, systems[i].label,
                            kMargin + column * (kWidth - 2 * kMargin) / kLegendColumns,
                            top + 10 + row * kLegendRow);
  }
  top += kLegendRow * std::ceil(static_cast<double>(systems.size()) / kLegendColumns) + kMargin;
  bool empty = true;
  for (const OperationResult& result : report.results) {
    if (result.sizes.empty()) continue;
    empty = false;
    svg += text_svg(kMargin, top + 10, "title",
                    str(name_of(result.operation), ", ", counted(result.replicas, "replica")));
    const double charts = top + 58;
    svg += chart_svg(time_chart(report, result), kChartLeft[0], charts, kChartWidth, kChartHeight);
    svg += chart_svg(rate_chart(report, result), kChartLeft[1], charts, kChartWidth, kChartHeight);
    top += kResultHeight;
  }
  if (empty) throw ValueError("plot: there is nothing to be shown");
  svg += text_svg(
      kMargin, top, "label",
      str(report.machine.cpu, ", ", report.machine.cores, " cores, ", report.machine.date));
  return svg_document(kWidth, top + kMargin, svg);
}

}  // namespace lockstep::bench
