#include "trainers/report/page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/telemetry/metrics.h"
#include "trainers/report/page_template.h"

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;

// Of a curve: a screen shows no more, and a page with ten of them opens in half a second.
constexpr std::size_t kMostPoints = 2'000;
// Of a picture: it can't be cut.
constexpr std::size_t kMostPictureBytes = 50'000;

// How much of what has no end of its own is shown.
struct Limits {
  std::size_t points = 30'000;  // of all curves
  std::size_t curves = 1'000;
  std::size_t items = 1'000;  // facts, marks, tables, rows of one, cells of one
  std::size_t text = 1'000;   // bytes

  // Half of each.
  void halve() {
    for (std::size_t* each : {&points, &curves, &items, &text}) {
      *each = std::max<std::size_t>(*each / 2, 1);
    }
  }
};

// Seven digits: more can't be seen, and a page is half as long.
Json number_json(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return static_cast<std::int64_t>(value);
  }
  const auto narrow = static_cast<float>(value);
  return std::isnormal(narrow) ? shortest_decimal(narrow) : value;
}

// f(item) of the first items, as a list.
template <typename Range, typename F>
Json list_json(const Range& range, std::size_t most, const F& f) {
  Json list = Json::array();
  for (const auto& item : range) {
    if (list.size() == most) break;
    list.push_back(f(item));
  }
  return list;
}

Json curve_json(const Curve& curve, std::size_t most, const Limits& limits) {
  Json steps = Json::array(), samples = Json::array(), times = Json::array(),
       values = Json::array();
  for (const std::size_t i : thinned(curve.points, most)) {
    const Point& point = curve.points[i];
    steps.push_back(point.step);
    samples.push_back(point.samples);
    times.push_back(number_json(point.elapsed_s));
    values.push_back(number_json(point.value));
  }
  return {{"name", cut(curve.name, limits.text)},
          {"step", std::move(steps)},
          {"samples", std::move(samples)},
          {"time", std::move(times)},
          {"values", std::move(values)}};
}

// The charts, and how many of their curves have no room.
Json charts_json(const std::vector<Chart>& charts, const Limits& limits, std::size_t& left_out) {
  left_out = sum_of(charts, [](const Chart& chart) { return chart.curves.size(); });
  const std::size_t shown = std::clamp<std::size_t>(left_out, 1, limits.curves);
  const std::size_t most = std::clamp<std::size_t>(limits.points / shown, 8, kMostPoints);
  std::size_t room = shown;
  Json list = Json::array();
  for (const Chart& chart : charts) {
    Json curves = list_json(chart.curves, room,
                            [&](const Curve& curve) { return curve_json(curve, most, limits); });
    room -= curves.size();
    left_out -= curves.size();
    if (curves.empty()) continue;
    list.push_back({{"name", cut(chart.name, limits.text)},
                    {"note", cut(chart.note, limits.text)},
                    {"series", std::move(curves)}});
  }
  return list;
}

Json mark_json(const Mark& mark, const Limits& limits) {
  return {{"kind", cut(mark.kind, limits.text)},
          {"text", cut(mark.text, limits.text)},
          {"step", mark.at.step},
          {"samples", mark.at.samples},
          {"time", number_json(mark.at.elapsed_s)}};
}

Json cells_json(const std::vector<std::string>& cells, const Limits& limits) {
  return list_json(cells, limits.items,
                   [&](const std::string& cell) { return cut(cell, limits.text); });
}

Json table_json(const Table& table, const Limits& limits) {
  Json rows =
      list_json(table.rows, limits.items, [&](const auto& row) { return cells_json(row, limits); });
  const std::size_t missing = table.rows.size() - rows.size();
  if (missing > 0) rows.push_back(Json::array({str("… and ", missing, " more")}));
  Json json{{"title", cut(table.title, limits.text)},
            {"head", cells_json(table.head, limits)},
            {"rows", std::move(rows)}};
  if (!table.note.empty()) json["note"] = cut(table.note, limits.text);
  if (table.is_confusion) json["is_confusion"] = true;
  if (!table.pictures.empty()) {
    json["pictures"] = list_json(table.pictures, limits.items, [](const std::string& picture) {
      return picture.size() > kMostPictureBytes ? "" : picture;
    });
  }
  return json;
}

Json page_json(const Page& page, const Limits& limits) {
  std::size_t left_out = 0;
  Json charts = charts_json(page.charts, limits, left_out);
  return {{"title", cut(page.title, limits.text)},
          {"facts",
           list_json(
               page.facts, limits.items,
               [&](const auto& fact) {
                 return Json::array({cut(fact.first, limits.text), cut(fact.second, limits.text)});
               })},
          {"charts", std::move(charts)},
          {"left_out", left_out},
          {"marks", list_json(page.marks, limits.items,
                              [&](const Mark& mark) { return mark_json(mark, limits); })},
          {"tables", list_json(page.tables, limits.items,
                               [&](const Table& table) { return table_json(table, limits); })}};
}

// As JSON that an HTML element may hold: no "<" begins a tag or ends the element.
std::string escaped(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string result;
  result.reserve(text.size());
  for (const char letter : text) {
    if (letter == '<') {
      result += "\\u003c";
    } else {
      result += letter;
    }
  }
  return result;
}

// The places of the least, the greatest and the first missing one of some points, in their order.
void keep_extremes(const std::vector<Point>& points, std::size_t begin, std::size_t end,
                   std::vector<std::size_t>& kept) {
  std::optional<std::size_t> least, greatest, missing;
  for (std::size_t i = begin; i < end; ++i) {
    const double value = points[i].value;
    if (!std::isfinite(value)) {
      if (!missing) missing = i;
      continue;
    }
    if (!least || value < points[*least].value) least = i;
    if (!greatest || value > points[*greatest].value) greatest = i;
  }
  const auto first = static_cast<std::ptrdiff_t>(kept.size());
  for (const auto& each : {least, greatest, missing}) {
    if (each) kept.push_back(*each);
  }
  std::ranges::sort(kept.begin() + first, kept.end());
  kept.erase(std::ranges::unique(kept.begin() + first, kept.end()).begin(), kept.end());
}

}  // namespace

std::vector<std::size_t> thinned(const std::vector<Point>& points, std::size_t most) {
  std::vector<std::size_t> kept;
  const std::size_t count = points.size();
  const std::size_t parts = count <= most ? count : (most - 2) / 3;
  for (std::size_t part = 0; part < parts; ++part) {
    keep_extremes(points, count * part / parts, count * (part + 1) / parts, kept);
  }
  if (count > 0 && kept.front() != 0) kept.insert(kept.begin(), 0);
  if (count > 0 && kept.back() != count - 1) kept.push_back(count - 1);
  return kept;
}

void CurvePoints::add(const Point& point) {
  if (kept_.empty() && part_.empty()) first_ = point;
  last_ = point;
  if (ends_.size() == kMostParts) join_parts();
  part_.push_back(point);
  if (part_.size() == width_) end_part();
}

void CurvePoints::end_part() {
  std::vector<std::size_t> kept;
  keep_extremes(part_, 0, part_.size(), kept);
  for (const std::size_t i : kept) kept_.push_back(part_[i]);
  ends_.push_back(kept_.size());
  part_.clear();
}

// Each two become one.
void CurvePoints::join_parts() {
  std::vector<std::size_t> kept, ends;
  std::size_t begin = 0;
  for (std::size_t part = 1; part < ends_.size(); part += 2) {
    keep_extremes(kept_, begin, ends_[part], kept);
    ends.push_back(kept.size());
    begin = ends_[part];
  }
  kept_ = mapped(kept, [&](std::size_t i) { return kept_[i]; });
  ends_ = std::move(ends);
  width_ *= 2;
}

std::vector<Point> CurvePoints::points() const {
  std::vector<Point> all = kept_;
  all.insert(all.end(), part_.begin(), part_.end());
  if (width_ == 1) return all;
  const auto are_same = [](const Point& a, const Point& b) {
    return a.step == b.step && a.elapsed_s == b.elapsed_s;
  };
  if (!are_same(all.front(), first_)) all.insert(all.begin(), first_);
  if (!are_same(all.back(), last_)) all.push_back(last_);
  return all;
}

std::string page_text(const Page& page) {
  Limits limits;
  for (;;) {
    const std::string data = escaped(page_json(page, limits));
    const std::size_t bytes = kPageBefore.size() + data.size() + kPageAfter.size();
    if (bytes <= kMostPageBytes) return str(kPageBefore, data, kPageAfter);
    limits.halve();
  }
}

}  // namespace lockstep::report
