#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "trainers/plan/plan_text.h"

namespace lockstep::plan {
namespace {

constexpr double kWidth = 340, kHeight = 210;                       // of a panel
constexpr double kLeft = 64, kTop = 28, kBottom = 40, kRight = 24;  // around its axes
// The colours of stages 0 to 3, which colour-blind readers can tell apart, on light and dark.
constexpr std::array kColours{"#0072b2", "#e69f00", "#009e73", "#cc79a7"};

// A value by the number of hosts, with a logarithmic or linear axis from 0 to 1.
struct Panel {
  const char* title;
  std::function<double(const PlannedJob&)> value;
  std::function<std::string(double)> text;
  bool is_part = false;
};

std::string number(double value) {
  return formatted("%.1f", value);
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return str("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\">",
             text, "</text>\n");
}

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return str("<path class=\"", kind, "\" d=\"M", number(x1), ",", number(y1), "L", number(x2), ",",
             number(y2), "\"/>\n");
}

// The powers of `base` around the values: at least two of them.
std::pair<double, double> powers_around(const std::vector<double>& values, double base) {
  const auto [least, greatest] = std::ranges::minmax(values);
  const double low = std::floor(std::log(least) / std::log(base) + 1e-9);
  const double high = std::ceil(std::log(greatest) / std::log(base) - 1e-9);
  return {low, std::max(high, low + 1)};
}

std::string drawn(const Panel& panel, const Plan& plan, double left, double top) {
  std::vector<double> hosts, values;
  for (const PlannedJob& job : plan.jobs) {
    if (job.step_s == 0 || panel.value(job) <= 0) continue;
    hosts.push_back(static_cast<double>(job.hosts));
    values.push_back(panel.value(job));
  }
  std::string svg = label(left + kLeft, top + 16, "start", panel.title);
  if (values.empty()) return svg;
  const auto [first, last] = powers_around(hosts, 2);
  const auto [low, high] = panel.is_part ? std::pair(0.0, 1.0) : powers_around(values, 10);
  const double right = left + kWidth - kRight, bottom = top + kHeight - kBottom;
  const auto x_of = [&, from = first, to = last](double count) {
    return left + kLeft + (std::log2(count) - from) / (to - from) * (right - left - kLeft);
  };
  const auto y_of = [&, from = low, to = high](double value) {
    const double place = panel.is_part ? value : std::log10(value);
    return bottom - (place - from) / (to - from) * (bottom - top - kTop);
  };
  const double step = panel.is_part ? 0.25 : std::max(1.0, std::ceil((high - low) / 5));
  for (double place = low; place <= high + 1e-9; place += step) {
    const double value = panel.is_part ? place : std::pow(10, place);
    svg += line(left + kLeft, y_of(value), right, y_of(value), "grid");
    svg += label(left + kLeft - 6, y_of(value) + 4, "end", panel.text(value));
  }
  for (double power = first; power <= last; power += std::max(1.0, std::ceil((last - first) / 6))) {
    const double count = std::pow(2, power);
    svg += label(x_of(count), bottom + 16, "middle", formatted("%.0f", count));
  }
  svg += line(left + kLeft, bottom, right, bottom, "axis");
  svg += label(right, bottom + 30, "end", "hosts");
  for (const int stage : plan.request.stages) {
    std::string points;
    for (const PlannedJob& job : plan.jobs) {
      if (job.stage != stage || job.step_s == 0 || panel.value(job) <= 0) continue;
      const double x = x_of(static_cast<double>(job.hosts));
      points += str(points.empty() ? "M" : "L", number(x), ",", number(y_of(panel.value(job))));
    }
    svg += str("<path class=\"curve\" stroke=\"", kColours.at(static_cast<std::size_t>(stage)),
               "\" d=\"", points, "\"/>\n");
  }
  return svg;
}

}  // namespace

std::string plan_svg(const Plan& plan) {
  const auto seconds = [](double value) {
    return value < 1 ? formatted("%g ms", value * 1e3) : formatted("%g s", value);
  };
  const std::array<Panel, 4> panels{
      {{"time of a step", [](const PlannedJob& job) { return job.step_s; }, seconds},
       {"part of it in which replicas compute",
        [](const PlannedJob& job) { return job.efficiency; },
        [](double value) { return formatted("%.0f%%", 100 * value); }, true},
       {"memory of a replica",
        [](const PlannedJob& job) { return static_cast<double>(job.memory) / (1 << 20); },
        [](double value) { return formatted("%g MiB", value); }},
       {"connections of a host",
        [](const PlannedJob& job) { return static_cast<double>(job.connections); },
        [](double value) { return formatted("%g", value); }}}};
  const double width = 2 * kWidth, height = 2 * kHeight + 28;
  std::string svg =
      str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(width), " ",
          number(height), "\" width=\"", number(width), "\" height=\"", number(height),
          "\" role=\"img\">\n<title>The job by its number of hosts</title>\n<style>\n"
          "svg { background: #fff; font: 12px sans-serif; }\n"
          "text { fill: #333; }\n"
          "path { fill: none; }\n"
          ".grid { stroke: #ccc; stroke-width: 0.5; }\n"
          ".axis { stroke: #888; }\n"
          ".curve { stroke-width: 2; }\n"
          "@media (prefers-color-scheme: dark) {\n"
          "  svg { background: #161616; }\n"
          "  text { fill: #ddd; }\n"
          "  .grid { stroke: #444; }\n"
          "}\n</style>\n");
  for (std::size_t i = 0; i < panels.size(); ++i) {
    svg += drawn(panels[i], plan, static_cast<double>(i % 2) * kWidth,
                 static_cast<double>(i / 2) * kHeight);
  }
  double x = kLeft;
  const double y = 2 * kHeight + 14;
  for (const int stage : plan.request.stages) {
    svg += str("<path class=\"curve\" stroke=\"", kColours.at(static_cast<std::size_t>(stage)),
               "\" d=\"M", number(x), ",", number(y - 4), "h20\"/>\n");
    svg += label(x + 26, y, "start", str("ZeRO stage ", stage));
    x += 130;
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::plan
