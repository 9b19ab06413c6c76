#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::bench {

/// How values become places along an axis.
struct Scale {
  double low = 0;  ///< values at the axis' two ends
  double high = 1;
  bool logarithmic = false;

  /// 0 at `low`, 1 at `high`.
  [[nodiscard]] double place(double value) const;
};

/// A mark on an axis.
struct Tick {
  double value;
  std::string label;
};

/// An axis: its scale, where it has marks, and what it shows.
struct Axis {
  Scale scale;
  std::vector<Tick> ticks;
  std::string title;
};

/// From 0 to above `high`, with ticks in steps of 1, 2 or 5 times a power of ten.
[[nodiscard]] Axis linear_axis(double high, const std::string& title);

/// A value with the range that it may as well be in.
struct Point {
  double x = 0;
  double y = 0;
  double low = 0;
  double high = 0;
};

/// Points joined by a line, in the style of that number.
struct Line {
  std::size_t style = 0;
  bool dashed = false;
  std::vector<Point> points;
};

/// A value that is the same everywhere, drawn from edge to edge.
struct Level {
  double y;
  std::string label;
};

/// A rectangle with two axes and lines.
struct Chart {
  Axis x;
  Axis y;
  std::vector<Line> lines;
  std::vector<Level> levels = {};
};

/// A sum of parts, each in the style of its number.
struct Bar {
  std::string label;
  bool faint = false;
  std::vector<double> parts = {};
  double low = 0;  ///< the range that the sum may as well be in
  double high = 0;
  std::string text = {};  ///< behind its end
};

/// Bars one below the other, their labels left of them, over an axis of values.
struct BarChart {
  Axis x;
  std::vector<Bar> bars;
  std::vector<Level> levels = {};  ///< values of x
};

inline constexpr double kBarHeight = 24;  ///< from one bar to the next

/// The chart as SVG elements, its plotting area at these coordinates and as high as its bars need.
[[nodiscard]] std::string bars_svg(const BarChart& chart, double left, double top, double width);

/// A square in that style and a text behind it, for a legend of bars.
[[nodiscard]] std::string legend_square_svg(std::size_t style, const std::string& label,
                                            double left, double middle);

/// The chart as SVG elements, its plotting area at these coordinates.
[[nodiscard]] std::string chart_svg(const Chart& chart, double left, double top, double width,
                                    double height);

/// A piece of line with the marker of that style and a text behind it, for a legend.
[[nodiscard]] std::string legend_entry_svg(std::size_t style, bool dashed, const std::string& label,
                                           double left, double middle);

/// A whole SVG of this size around `elements`, with the styles that these use.
[[nodiscard]] std::string svg_document(double width, double height, const std::string& elements);

/// Text at a place; `classes` says how it looks and is anchored: "title", "label", "end", "middle"
/// …
[[nodiscard]] std::string text_svg(double x, double y, const std::string& classes,
                                   const std::string& text);

}  // namespace lockstep::bench
