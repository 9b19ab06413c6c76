#include "trainers/bench/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "framework/base/text.h"

namespace lockstep::bench {
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

constexpr double kLegendLine = 34;

std::string number(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f", value);
  return buffer.data();
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    switch (letter) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += letter;
    }
  }
  return result;
}

std::string line_svg(double x1, double y1, double x2, double y2, const std::string& classes) {
  return str("<line class=\"", classes, "\" x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"",
             number(x2), "\" y2=\"", number(y2), "\"/>\n");
}

std::string colour_class(std::size_t style) {
  return str("c", style % kColours.size());
}

std::string square_svg(std::size_t style, bool faint, double left, double top, double width,
                       double height) {
  return str("<rect class=\"part ", colour_class(style), faint ? " faint" : "", "\" x=\"",
             number(left), "\" y=\"", number(top), "\" width=\"", number(width), "\" height=\"",
             number(height), "\"/>\n");
}

// Beyond eight styles colours come again, with other markers.
std::string marker_svg(std::size_t style, double x, double y) {
  const std::size_t marker = (style + style / kMarkers.size()) % kMarkers.size();
  return str("<path class=\"marker ", colour_class(style), "\" transform=\"translate(", number(x),
             ",", number(y), ")\" d=\"", kMarkers[marker], "\"/>\n");
}

std::string line_classes(std::size_t style, bool dashed) {
  return str("line ", colour_class(style), dashed ? " dashed" : "");
}

// Where values are on the page.
class Area {
 public:
  Area(const Chart& chart, double left, double top, double width, double height)
      : chart_(&chart), left_(left), top_(top), width_(width), height_(height) {}
  [[nodiscard]] double x(double value) const {
    return left_ + width_ * chart_->x.scale.place(value);
  }
  [[nodiscard]] double y(double value) const {
    return bottom() - height_ * chart_->y.scale.place(value);
  }
  [[nodiscard]] double left() const { return left_; }
  [[nodiscard]] double right() const { return left_ + width_; }
  [[nodiscard]] double top() const { return top_; }
  [[nodiscard]] double bottom() const { return top_ + height_; }

 private:
  const Chart* chart_;
  double left_;
  double top_;
  double width_;
  double height_;
};

std::string axes_svg(const Chart& chart, const Area& area) {
  std::string svg = text_svg(area.left(), area.top() - 14, "label", chart.y.title);
  for (const Tick& tick : chart.y.ticks) {
    const double y = area.y(tick.value);
    svg += line_svg(area.left(), y, area.right(), y, "grid");
    svg += text_svg(area.left() - 8, y + 5, "label end", tick.label);
  }
  for (const Tick& tick : chart.x.ticks) {
    const double x = area.x(tick.value);
    svg += line_svg(x, area.top(), x, area.bottom(), "grid");
    svg += text_svg(x, area.bottom() + 20, "label middle", tick.label);
  }
  return svg + text_svg((area.left() + area.right()) / 2, area.bottom() + 40, "label middle",
                        chart.x.title);
}

std::string line_of_points_svg(const Line& line, const Area& area) {
  std::string path;
  std::string bars;
  std::string markers;
  for (const Point& point : line.points) {
    const double x = area.x(point.x);
    const double y = area.y(point.y);
    path += str(path.empty() ? "M" : "L", number(x), ",", number(y));
    if (point.low < point.high) {
      bars +=
          line_svg(x, area.y(point.low), x, area.y(point.high), "bar " + colour_class(line.style));
    }
    markers += marker_svg(line.style, x, y);
  }
  return str("<path class=\"", line_classes(line.style, line.dashed), "\" d=\"", path, "\"/>\n",
             bars, markers);
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
      ".title{font-size:19px;font-weight:600}.label{font-size:14px}\n"
      ".end{text-anchor:end}.middle{text-anchor:middle}\n"
      ".ground{fill:#fff}.grid{stroke:#dcdcdc;stroke-width:1}\n"
      ".level{stroke:#222;stroke-width:1.5;stroke-dasharray:2 4}\n",
      light,
      // Behind the colours, whose fill a line must not have.
      ".line{fill:none;stroke-width:2.4;stroke-linejoin:round}.dashed{stroke-width:1.7;stroke-"
      "dasharray:7 4}\n"
      ".part{stroke:none}.faint{fill-opacity:.6}.spread{stroke:#222;stroke-width:1.6}\n"
      ".marker{stroke-width:1.6}.bar{stroke-width:1.6;stroke-opacity:.55}\n"
      "@media (prefers-color-scheme:dark){\n"
      "text{fill:#e8e8e8}.ground{fill:#14171c}.grid{stroke:#353a42}.level,.spread{stroke:#e8e8e8}"
      "\n",
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

std::string text_svg(double x, double y, const std::string& classes, const std::string& text) {
  return str("<text class=\"", classes, "\" x=\"", number(x), "\" y=\"", number(y), "\">",
             escaped(text), "</text>\n");
}

std::string legend_entry_svg(std::size_t style, bool dashed, const std::string& label, double left,
                             double middle) {
  return line_svg(left, middle, left + kLegendLine, middle, line_classes(style, dashed)) +
         marker_svg(style, left + kLegendLine / 2, middle) +
         text_svg(left + kLegendLine + 8, middle + 5, "label", label);
}

std::string chart_svg(const Chart& chart, double left, double top, double width, double height) {
  const Area area(chart, left, top, width, height);
  std::string svg = axes_svg(chart, area);
  for (const Level& level : chart.levels) {
    const double y = area.y(level.y);
    svg += line_svg(area.left(), y, area.right(), y, "level");
    svg += text_svg(area.left() + 6, y - 6, "label", level.label);
  }
  for (const Line& line : chart.lines) svg += line_of_points_svg(line, area);
  return svg;
}

std::string bars_svg(const BarChart& chart, double left, double top, double width) {
  const double bottom = top + kBarHeight * static_cast<double>(chart.bars.size());
  const auto x = [&](double value) { return left + width * chart.x.scale.place(value); };
  std::string svg;
  for (const Tick& tick : chart.x.ticks) {
    svg += line_svg(x(tick.value), top, x(tick.value), bottom, "grid");
    svg += text_svg(x(tick.value), bottom + 20, "label middle", tick.label);
  }
  svg += text_svg(left + width / 2, bottom + 40, "label middle", chart.x.title);
  double middle = top + kBarHeight / 2;
  for (const Bar& bar : chart.bars) {
    svg += text_svg(left - 8, middle + 5, "label end", bar.label);
    double sum = 0;
    for (std::size_t i = 0; i < bar.parts.size(); ++i) {
      const double begin = x(sum);
      sum += bar.parts[i];
      if (bar.parts[i] > 0) svg += square_svg(i, bar.faint, begin, middle - 8, x(sum) - begin, 16);
    }
    svg += line_svg(x(bar.low), middle, x(bar.high), middle, "spread");
    svg += text_svg(x(std::max(sum, bar.high)) + 6, middle + 5, "label", bar.text);
    middle += kBarHeight;
  }
  for (const Level& level : chart.levels) {
    svg += line_svg(x(level.y), top - 6, x(level.y), bottom, "level");
    svg += text_svg(x(level.y), top - 10, "label middle", level.label);
  }
  return svg;
}

std::string legend_square_svg(std::size_t style, const std::string& label, double left,
                              double middle) {
  return square_svg(style, false, left, middle - 8, 16, 16) +
         text_svg(left + 24, middle + 5, "label", label);
}

std::string svg_document(double width, double height, const std::string& elements) {
  return str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(width), "\" height=\"",
             number(height), "\" viewBox=\"0 0 ", number(width), " ", number(height), "\">\n",
             style_sheet(), "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n", elements,
             "</svg>\n");
}

}  // namespace lockstep::bench
