#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "trainers/report/run_record.h"

namespace lockstep::report {

/// A curve, its points in their order.
struct Curve {
  std::string name;
  std::vector<Point> points{};
};

/// Curves over each other, with one scale.
struct Chart {
  std::string name;
  std::vector<Curve> curves{};
  std::string note{};  ///< a sentence above them
};

/// Something that happened, shown on the axes of all charts.
struct Mark {
  Point at;          ///< its value says nothing
  std::string kind;  ///< one word, which stands on the axes: "resumed"
  std::string text;  ///< for the table of events
};

struct Table {
  std::string title;
  std::vector<std::string> head{};
  std::vector<std::vector<std::string>> rows{};
  std::string note{};  ///< what it is, for people
  /// Rows are of a class and its counts of each prediction: cells are coloured by them.
  bool is_confusion = false;
  /// Of the rows, as data URIs, each shown before its row; "": it has none.
  std::vector<std::string> pictures{};
};

/// What a page shows, in this order. Every text may have any bytes: none can be more than text
/// there, and what is no UTF-8 is replaced.
struct Page {
  std::string title{};
  std::vector<std::pair<std::string, std::string>> facts{};
  std::vector<Chart> charts{};
  std::vector<Mark> marks{};
  std::vector<Table> tables{};
};

/// No page is longer, whatever it shows.
inline constexpr std::size_t kMostPageBytes = 3'000'000;

/// The page as one HTML file that needs nothing from elsewhere: page.html with its styles, scripts
/// and dygraphs, and what it shows as JSON. Curves are thinned, the more the longer they are, and
/// texts are cut; tables end early, and curves are left out, where there are very many: the page
/// says so. Pictures of more than 50,000 bytes are left out.
[[nodiscard]] std::string page_text(const Page& page);

/// Which of the points are shown where at most `most` (at least 8) shall be, in their order: the
/// first, the last, and of each of equal parts the least, the greatest, and one that is no number.
[[nodiscard]] std::vector<std::size_t> thinned(const std::vector<Point>& points, std::size_t most);

/// A curve's points as they come. Of more than a page can tell apart, these are kept of parts that
/// get longer: memory is bounded, however long a run is.
class CurvePoints {
 public:
  static constexpr std::size_t kMostParts = 8192;  ///< an even number

  void add(const Point& point);
  /// All of up to kMostParts; else the first, the last, and of each part those that thinned()
  /// keeps.
  [[nodiscard]] std::vector<Point> points() const;

 private:
  void end_part();
  void join_parts();

  std::size_t width_ = 1;          // of a part, in points
  std::vector<Point> kept_;        // of the parts that are whole
  std::vector<std::size_t> ends_;  // of each of them, in these
  std::vector<Point> part_;        // what has come of the next one
  Point first_, last_;
};

}  // namespace lockstep::report
