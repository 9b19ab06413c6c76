#include "trainers/charts/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <sstream>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::charts {
namespace {

// Okabe and Ito's colours, which the colour-blind can tell apart, darker on light ground and
// lighter on dark.
struct Colours {
  const char* on_light;
  const char* on_dark;
};
constexpr std::array<Colours, 8> kColours{{{"#0072b2", "#56b4e9"},
                                           {"#d55e00", "#ff8c42"},
                                           {"#007a5a", "#2bd4a4"},
                                           {"#b0578d", "#e79fc8"},
                                           {"#a87000", "#f0c24a"},
                                           {"#4b3fa8", "#a79bff"},
                                           {"#1a1a1a", "#f2f2f2"},
                                           {"#7a7a7a", "#a8a8a8"}}};

// Around (0, 0), each about 9 wide.
constexpr std::array<const char*, 8> kMarkers{{
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",    // disc
    "M-3.6,-3.6h7.2v7.2h-7.2z",               // square
    "M0,-4.8L4.6,3.4H-4.6z",                  // triangle
    "M0,-5L5,0L0,5L-5,0z",                    // diamond
    "M0,4.8L4.6,-3.4H-4.6z",                  // triangle on its tip
    "M-4,-4L4,4M-4,4L4,-4",                   // cross
    "M0,-5V5M-5,0H5",                         // plus
    "M-5,0L-2.5,-4.3H2.5L5,0L2.5,4.3H-2.5z",  // hexagon
}};

constexpr double kWidth = 1080;
constexpr double kMargin = 24;
constexpr double kPanelWidth = kWidth / 2;
constexpr double kTitle = 58;    // from a panel's top to its chart
constexpr double kBelow = 76;    // the axis below a chart, and a gap
constexpr double kValues = 72;   // left of lines, for the ticks of y
constexpr double kLabels = 120;  // left of bars
constexpr double kTexts = 76;    // right of bars
constexpr double kLineHeight = 300;
constexpr double kBarHeight = 24;  // from one bar to the next
constexpr double kLegendRow = 26;
constexpr std::size_t kLegendColumns = 5;
constexpr double kLegendLine = 34;
constexpr double kSquare = 16;
constexpr double kNoteRow = 20;
constexpr std::size_t kNoteLetters = 132;  // in a row, of the widest of the fonts

std::string number(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f", value);
  return buffer.data();
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    result += letter == '<'   ? "&lt;"
              : letter == '>' ? "&gt;"
              : letter == '&' ? "&amp;"
              : letter == '"' ? "&quot;"
                              : std::string(1, letter);
  }
  return result;
}

// `classes` says how it looks and where it is anchored.
std::string text_svg(double x, double y, const std::string& classes, const std::string& text) {
  return str("<text class=\"", classes, "\" x=\"", number(x), "\" y=\"", number(y), "\">",
             escaped(text), "</text>\n");
}

std::string line_svg(double x1, double y1, double x2, double y2, const std::string& classes) {
  return str("<line class=\"", classes, "\" x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"",
             number(x2), "\" y2=\"", number(y2), "\"/>\n");
}

std::string colour_class(const Style& style) {
  return str("c", style.number % kColours.size());
}

std::string line_classes(const Style& style) {
  return str("line ", colour_class(style), style.back ? " dashed" : "");
}

std::string part_svg(const Style& style, double left, double middle, double width) {
  return str("<rect class=\"part ", colour_class(style), style.back ? " faint" : "", "\" x=\"",
             number(left), "\" y=\"", number(middle - kSquare / 2), "\" width=\"", number(width),
             "\" height=\"", number(kSquare), "\"/>\n");
}

// Beyond eight styles colours come again, with other markers.
std::string marker_svg(const Style& style, double x, double y) {
  const std::size_t marker = (style.number + style.number / kMarkers.size()) % kMarkers.size();
  return str("<path class=\"marker ", colour_class(style), "\" transform=\"translate(", number(x),
             ",", number(y), ")\" d=\"", kMarkers[marker], "\"/>\n");
}

// Where a chart's values are on the page.
struct Area {
  double left;
  double top;
  double width;
  double height;
  [[nodiscard]] double right() const { return left + width; }
  [[nodiscard]] double bottom() const { return top + height; }
  [[nodiscard]] double x(const Axis& axis, double value) const {
    return left + width * axis.scale.place(value);
  }
  [[nodiscard]] double y(const Axis& axis, double value) const {
    return bottom() - height * axis.scale.place(value);
  }
};

std::string x_axis_svg(const Axis& axis, const Area& area) {
  std::string svg;
  for (const Tick& tick : axis.ticks) {
    const double x = area.x(axis, tick.value);
    svg += line_svg(x, area.top, x, area.bottom(), "grid");
    svg += text_svg(x, area.bottom() + 20, "label middle", tick.label);
  }
  return svg + text_svg(area.left + area.width / 2, area.bottom() + 40, "label middle", axis.title);
}

std::string y_axis_svg(const Axis& axis, const Area& area) {
  std::string svg = text_svg(area.left, area.top - 14, "label", axis.title);
  for (const Tick& tick : axis.ticks) {
    const double y = area.y(axis, tick.value);
    svg += line_svg(area.left, y, area.right(), y, "grid");
    svg += text_svg(area.left - 8, y + 5, "label end", tick.label);
  }
  return svg;
}

std::string chart_svg(const LineChart& chart, const Area& area) {
  std::string svg = y_axis_svg(chart.y, area) + x_axis_svg(chart.x, area);
  for (const Line& line : chart.lines) {
    std::string path;
    std::string whiskers;
    std::string markers;
    for (const Point& point : line.points) {
      const double x = area.x(chart.x, point.x);
      const double y = area.y(chart.y, point.y);
      path += str(path.empty() ? "M" : "L", number(x), ",", number(y));
      if (point.low < point.high) {
        whiskers += line_svg(x, area.y(chart.y, point.low), x, area.y(chart.y, point.high),
                             "whisker " + colour_class(line.style));
      }
      markers += marker_svg(line.style, x, y);
    }
    svg += str("<path class=\"", line_classes(line.style), "\" d=\"", path, "\"/>\n", whiskers,
               markers);
  }
  for (const Level& level : chart.levels) {
    const double y = area.y(chart.y, level.value);
    svg += line_svg(area.left, y, area.right(), y, "level");
    svg += text_svg(area.left + 6, y - 6, "label over", level.label);
  }
  return svg;
}

std::string chart_svg(const BarChart& chart, const Area& area) {
  std::string svg = x_axis_svg(chart.x, area);
  double middle = area.top + kBarHeight / 2;
  for (const Bar& bar : chart.bars) {
    svg += text_svg(area.left - 8, middle + 5, "label end", bar.label);
    double sum = 0;
    for (std::size_t i = 0; i < bar.parts.size(); ++i) {
      const double begin = area.x(chart.x, sum);
      sum += bar.parts[i];
      if (bar.parts[i] > 0)
        svg += part_svg({i, bar.back}, begin, middle, area.x(chart.x, sum) - begin);
    }
    svg += line_svg(area.x(chart.x, bar.low), middle, area.x(chart.x, bar.high), middle, "spread");
    svg +=
        text_svg(area.x(chart.x, std::max(sum, bar.high)) + 6, middle + 5, "label over", bar.text);
    middle += kBarHeight;
  }
  for (const Level& level : chart.levels) {
    const double x = area.x(chart.x, level.value);
    svg += line_svg(x, area.top - 6, x, area.bottom(), "level");
    svg += text_svg(x, area.top - 10, "label middle", level.label);
  }
  return svg;
}

Area area_of(const LineChart&, double left, double top) {
  return {left + kValues, top, kPanelWidth - kMargin - kValues - kMargin, kLineHeight};
}

Area area_of(const BarChart& chart, double left, double top) {
  return {left + kLabels, top, kPanelWidth - 2 * kMargin - kLabels - kTexts,
          kBarHeight * static_cast<double>(chart.bars.size())};
}

// Elements, and where the next ones may begin.
struct Drawn {
  std::string svg;
  double bottom;
};

Drawn panels_svg(const std::vector<Panel>& panels, double top) {
  Drawn drawn{"", top};
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const bool begins_row = i % 2 == 0;
    if (begins_row) top = drawn.bottom;
    const double left = begins_row ? kMargin : kMargin + kPanelWidth;
    if (!panels[i].title.empty()) drawn.svg += text_svg(left, top + 10, "title", panels[i].title);
    std::visit(
        [&](const auto& chart) {
          const Area area = area_of(chart, left, top + kTitle);
          drawn.svg += chart_svg(chart, area);
          drawn.bottom = std::max(drawn.bottom, area.bottom() + kBelow);
        },
        panels[i].chart);
  }
  return drawn;
}

Drawn legend_svg(const Picture& picture, double top) {
  const bool lines = std::any_of(
      picture.panels.begin(), picture.panels.end(),
      [](const Panel& panel) { return std::holds_alternative<LineChart>(panel.chart); });
  Drawn drawn{"", top};
  for (std::size_t i = 0; i < picture.legend.size(); ++i) {
    const auto& [style, label] = picture.legend[i];
    const double left =
        kMargin + static_cast<double>(i % kLegendColumns) * (kWidth - 2 * kMargin) / kLegendColumns;
    const double middle = top + 10 + static_cast<double>(i / kLegendColumns) * kLegendRow;
    if (lines) {
      drawn.svg += line_svg(left, middle, left + kLegendLine, middle, line_classes(style)) +
                   marker_svg(style, left + kLegendLine / 2, middle);
    } else {
      drawn.svg += part_svg(style, left, middle, kSquare);
    }
    drawn.svg += text_svg(left + (lines ? kLegendLine : kSquare) + 8, middle + 5, "label", label);
    drawn.bottom = middle - 10 + kLegendRow;
  }
  return drawn;
}

// Words in rows as wide as the picture, the term in bold before the first.
Drawn note_svg(const Note& note, double top) {
  Drawn drawn{"", top};
  std::size_t letters = note.term.size() + 2;
  std::string row;
  const auto end_row = [&] {
    const std::string term = escaped(note.term);
    drawn.svg +=
        str("<text class=\"label\" x=\"", number(kMargin), "\" y=\"", number(drawn.bottom + 15),
            "\">", drawn.bottom == top ? str("<tspan class=\"term\">", term, ":</tspan>") : "",
            escaped(row), "</text>\n");
    drawn.bottom += kNoteRow;
    row.clear();
    letters = 0;
  };
  std::istringstream words(note.text);
  for (std::string word; words >> word;) {
    if (letters + word.size() + 1 > kNoteLetters) end_row();
    letters += word.size() + 1;
    row += (letters == word.size() + 1 ? "" : " ") + word;
  }
  end_row();
  return drawn;
}

std::string style_sheet() {
  std::string light;
  std::string dark;
  for (std::size_t i = 0; i < kColours.size(); ++i) {
    light += str(".c", i, "{stroke:", kColours[i].on_light, ";fill:", kColours[i].on_light, "}\n");
    dark += str(".c", i, "{stroke:", kColours[i].on_dark, ";fill:", kColours[i].on_dark, "}\n");
  }
  return str(
      "<style>\n"
      "text{font-family:system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif;fill:#222}\n"
      ".title{font-size:19px;font-weight:600}.label{font-size:14px}.term{font-weight:600}\n"
      ".end{text-anchor:end}.middle{text-anchor:middle}\n"
      ".over{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}\n"
      ".ground{fill:#fff}.grid{stroke:#dcdcdc;stroke-width:1}\n"
      ".level{stroke:#222;stroke-width:1.5;stroke-dasharray:2 4}\n",
      light,
      // Behind the colours, whose fill a line must not have.
      ".line{fill:none;stroke-width:2.4;stroke-linejoin:round}.dashed{stroke-width:1.7;stroke-"
      "dasharray:7 4}\n"
      ".part{stroke:none}.faint{fill-opacity:.6}.spread{stroke:#222;stroke-width:1.6}\n"
      ".marker{stroke-width:1.6}.whisker{stroke-width:1.6;stroke-opacity:.55}\n"
      "@media (prefers-color-scheme:dark){\n"
      "text{fill:#e8e8e8}.over{stroke:#14171c}.ground{fill:#14171c}.grid{stroke:#353a42}\n"
      ".level,.spread{stroke:#e8e8e8}\n",
      dark, ".line{fill:none}.part{stroke:none}\n}\n</style>\n");
}

}  // namespace

double Scale::place(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

Axis linear_axis(double high, const std::string& title) {
  double step = std::pow(10, std::floor(std::log10(high)));
  if (high / step < 2)
    step /= 5;
  else if (high / step < 5)
    step /= 2;
  const double top = std::ceil(high / step) * step;
  Axis axis{.scale = {0, top, false}, .ticks = {}, .title = title};
  for (int i = 0; i * step <= top * 1.001; ++i) axis.ticks.push_back({i * step, str(i * step)});
  return axis;
}

Axis decimal_axis(double low, double high, const std::string& title, const Label& label) {
  const double first = std::floor(std::log10(low));
  const double last = std::max(first + 1, std::ceil(std::log10(high)));
  Axis axis{.scale = {std::pow(10, first), std::pow(10, last), true}, .ticks = {}, .title = title};
  for (double power = first; power <= last; ++power)
    axis.ticks.push_back({std::pow(10, power), label(std::pow(10, power))});
  return axis;
}

Axis binary_axis(double low, double high, const std::string& title, const Label& label) {
  if (low == high) {
    low /= 2;
    high *= 2;
  }
  const double octaves = std::log2(high / low);
  const int step = octaves >= 11 ? 5 : octaves >= 6 ? 2 : 1;
  Axis axis{.scale = {low, high, true}, .ticks = {}, .title = title};
  for (int power = 0; std::exp2(power) <= high; power += step) {
    if (std::exp2(power) >= low) axis.ticks.push_back({std::exp2(power), label(std::exp2(power))});
  }
  return axis;
}

std::string to_svg(const Picture& picture) {
  if (picture.panels.empty()) throw ValueError("plot: there is nothing to be shown");
  Drawn all = legend_svg(picture, kMargin);
  const auto append = [&](const Drawn& more) {
    all.svg += more.svg;
    all.bottom = more.bottom;
  };
  for (const Note& note : picture.notes) append(note_svg(note, all.bottom + 4));
  append(panels_svg(picture.panels, all.bottom + kMargin));
  all.svg += text_svg(kMargin, all.bottom, "label", picture.footer);
  const std::string width = number(kWidth);
  const std::string height = number(all.bottom + kMargin);
  return str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
             "\" viewBox=\"0 0 ", width, " ", height, "\">\n", style_sheet(),
             "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n", all.svg, "</svg>\n");
}

}  // namespace lockstep::charts
