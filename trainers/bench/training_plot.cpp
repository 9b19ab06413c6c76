#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/wording.h"
#include "trainers/bench/chart.h"
#include "trainers/bench/plot.h"
#include "trainers/bench/units.h"

namespace lockstep::bench {
namespace {

constexpr double kWidth = 1080;
constexpr double kMargin = 24;
constexpr double kPanelWidth = kWidth / 2;
constexpr double kLabels = 120;  // left of the bars
constexpr double kTimes = 76;    // right of them
constexpr double kTitle = 56;    // above them
constexpr double kBelow = 70;    // the axis and a gap
constexpr double kMilliseconds = 1e3;

Bar step_bar(const TrainingResult& result, const StepMeasurement& measurement) {
  Bar bar{.label = measurement.step.label,
          .faint = measurement.name != "lockstep",
          .low = measurement.step.seconds.lower * kMilliseconds,
          .high = measurement.step.seconds.upper * kMilliseconds,
          .text = time_text(measurement.step.seconds.median)};
  for (const double part : exposed_parts(result, measurement))
    bar.parts.push_back(std::max(part, 0.0) * kMilliseconds);
  return bar;
}

Axis axis_of(const std::vector<Bar>& bars, const std::string& title) {
  double high = 1e-3;
  for (const Bar& bar : bars) high = std::max(high, bar.high);
  return linear_axis(high, title);
}

struct Panel {
  std::string title;
  BarChart chart;
  [[nodiscard]] double height() const {
    return kTitle + kBarHeight * static_cast<double>(chart.bars.size()) + kBelow;
  }
};

Panel step_panel(const TrainingResult& result) {
  Panel panel{str(result.model, ", ", counted(result.replicas, "replica")), {}};
  for (const StepMeasurement& measurement : result.measurements) {
    if (!is_reference(measurement)) panel.chart.bars.push_back(step_bar(result, measurement));
  }
  panel.chart.x = axis_of(panel.chart.bars, "a step, ms");
  if (const std::optional<Floor> floor = floor_of(result))
    panel.chart.levels.push_back({floor->seconds() * kMilliseconds, "floor"});
  return panel;
}

// In the style that no part of a step has.
Panel launch_panel(const TrainingReport& report) {
  Panel panel{str("launch to first step, ", report.launched_replicas, " processes"), {}};
  for (const Measurement& launch : report.launches) {
    std::vector<double> parts(kStepPartNames.size(), 0);
    parts.push_back(launch.seconds.median);
    panel.chart.bars.push_back({.label = launch.label,
                                .faint = launch.label != "train",
                                .parts = parts,
                                .low = launch.seconds.lower,
                                .high = launch.seconds.upper,
                                .text = time_text(launch.seconds.median)});
  }
  panel.chart.x = axis_of(panel.chart.bars, "time, s");
  return panel;
}

}  // namespace

std::string to_svg(const TrainingReport& report) {
  std::vector<Panel> panels;
  for (const TrainingResult& result : report.results) panels.push_back(step_panel(result));
  if (!report.launches.empty()) panels.push_back(launch_panel(report));
  if (panels.empty()) throw ValueError("plot: there is nothing to be shown");

  std::string svg;
  for (std::size_t i = 0; i < kStepPartNames.size(); ++i) {
    svg += legend_square_svg(i, kStepPartNames[i], kMargin + static_cast<double>(i) * 160,
                             kMargin + 10);
  }
  double top = 2 * kMargin + 26;
  for (std::size_t i = 0; i < panels.size(); i += 2) {
    double height = 0;
    for (std::size_t j = i; j < std::min(i + 2, panels.size()); ++j) {
      const double left = kMargin + static_cast<double>(j - i) * kPanelWidth;
      svg += text_svg(left, top + 10, "title", panels[j].title);
      svg += bars_svg(panels[j].chart, left + kLabels, top + kTitle,
                      kPanelWidth - 2 * kMargin - kLabels - kTimes);
      height = std::max(height, panels[j].height());
    }
    top += height;
  }
  svg += text_svg(
      kMargin, top, "label",
      str(report.machine.cpu, ", ", report.machine.cores, " cores, ", report.machine.date));
  return svg_document(kWidth, top + kMargin, svg);
}

}  // namespace lockstep::bench
