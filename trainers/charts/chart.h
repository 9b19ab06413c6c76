#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::charts {

// A picture is plain data, which to_svg() draws. It knows nothing of where its numbers come from.

/// Maps values to places along an axis.
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

struct Axis {
  Scale scale;
  std::vector<Tick> ticks;
  std::string title;
};

using Label = std::function<std::string(double value)>;

/// From 0 to `high` or a little more, with ticks in steps of 1, 2 or 5 times a power of ten.
[[nodiscard]] Axis linear_axis(double high, const std::string& title);

/// From the power of ten at or below `low` to the one at or above `high`, with a tick at each.
[[nodiscard]] Axis decimal_axis(double low, double high, const std::string& title,
                                const Label& label);

/// From `low` to `high`, with ticks at powers of two, 1 and 1024 among them where they fit; a
/// single value stands in the middle.
[[nodiscard]] Axis binary_axis(double low, double high, const std::string& title,
                               const Label& label);

/// A value, and a whisker from `low` to `high`. No whisker if they are equal.
struct Point {
  double x = 0;
  double y = 0;
  double low = 0;
  double high = 0;
};

/// The look of a series: its number gives the colour and the marker; `back` sets it back (a dashed
/// line, a fainter bar).
struct Style {
  std::size_t number = 0;
  bool back = false;
};

/// Points joined by a line.
struct Line {
  Style style;
  std::vector<Point> points = {};
};

/// A reference: a dotted line across the chart at one value.
struct Level {
  double value;
  std::string label;
};

/// Lines over x; levels are values of y.
struct LineChart {
  Axis x;
  Axis y;
  std::vector<Line> lines = {};
  std::vector<Level> levels = {};
};

/// A sum of parts, each in the style of its number, with a whisker from `low` to `high` and a text
/// at its end.
struct Bar {
  std::string label;
  bool back = false;
  std::vector<double> parts = {};
  double low = 0;
  double high = 0;
  std::string text = {};
};

/// Bars one below the other; levels are values of x.
struct BarChart {
  Axis x;
  std::vector<Bar> bars = {};
  std::vector<Level> levels = {};
};

struct Panel {
  std::string title;
  std::variant<LineChart, BarChart> chart;
};

/// The meaning of a style. A legend shows lines with markers if its picture has lines, else
/// squares.
struct LegendEntry {
  Style style;
  std::string label;
};

/// A term in the picture and its meaning, in sentences.
struct Note {
  std::string term;
  std::string text;
};

/// Panels two in a row, under a legend and the notes.
struct Picture {
  std::vector<LegendEntry> legend;
  std::vector<Note> notes;
  std::vector<Panel> panels;
  std::string footer;
};

/// The picture as an SVG. Colours can be told apart by the colour-blind, markers by everyone; they
/// follow the viewer's light or dark scheme. ValueError without panels.
[[nodiscard]] std::string to_svg(const Picture& picture);

}  // namespace lockstep::charts
