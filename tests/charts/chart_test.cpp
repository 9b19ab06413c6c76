#include "trainers/charts/chart.h"

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/occurrences.h"

using namespace lockstep;
using namespace lockstep::charts;
using lockstep::testing::count;
using lockstep::testing::message_of;

namespace {

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> all;
  for (const Tick& tick : axis.ticks) all.push_back(tick.label);
  return all;
}

std::string number(double value) {
  return str(value);
}

Picture example() {
  const LineChart lines{.x = binary_axis(1, 4, "x", number),
                        .y = linear_axis(10, "y"),
                        .lines = {{.style = {0, false}, .points = {{1, 2, 1, 3}, {4, 5, 5, 5}}},
                                  {.style = {9, true}, .points = {{2, 7}}}},
                        .levels = {{8, "a level"}}};
  const BarChart bars{.x = linear_axis(6, "z"),
                      .bars = {{.label = "a bar", .parts = {1, 0, 2}, .low = 2, .high = 4}},
                      .levels = {{1, "another"}}};
  return {.legend = {{{0, false}, "first"}, {{9, true}, "a <second> & \"last\""}},
          .notes = {{"term", "what it means"}},
          .panels = {{"lines", lines}, {"bars", bars}},
          .footer = "below"};
}

}  // namespace

TEST_CASE("axes have ticks at round values, and reach around what they show") {
  const Axis linear = linear_axis(23, "");
  CHECK(linear.scale.high == 25);
  CHECK(labels(linear) == std::vector<std::string>{"0", "5", "10", "15", "20", "25"});
  CHECK(linear.scale.place(12.5) == Approx(0.5));

  const Axis decimal = decimal_axis(2e-3, 0.5, "", number);
  CHECK(labels(decimal) == std::vector<std::string>{"0.001", "0.01", "0.1", "1"});
  CHECK(decimal.scale.place(0.01) == Approx(1.0 / 3));
  CHECK(decimal_axis(1, 1, "", number).scale.high == Approx(10));

  CHECK(labels(binary_axis(8, 16, "", number)) == std::vector<std::string>{"8", "16"});
  CHECK(labels(binary_axis(8, 1 << 16, "", number)) ==
        std::vector<std::string>{"32", "1024", "32768"});
  CHECK(binary_axis(8, 8, "", number).scale.place(8) == Approx(0.5));
}

TEST_CASE("a picture is an SVG with all its parts, in two colour schemes") {
  const std::string svg = to_svg(example());
  CHECK(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0) == 0);
  CHECK(svg.substr(svg.size() - 7) == "</svg>\n");
  CHECK(count(svg, "@media (prefers-color-scheme:dark)") == 1);
  CHECK(count(svg, "<text") == count(svg, "</text>"));
  CHECK(count(svg, "<path class=\"line c0\"") == 1);
  CHECK(count(svg, "<path class=\"line c1 dashed\"") == 1);  // there are eight colours
  CHECK(count(svg, "class=\"whisker") == 1);                 // the other points have no range
  CHECK(count(svg, "<rect class=\"part") == 2);              // a part of 0 is not drawn
  CHECK(count(svg, "class=\"spread\"") == 1);
  CHECK(count(svg, "class=\"level\"") == 2);
  for (const std::string text :
       {"lines", "bars", "first", "a &lt;second&gt; &amp; &quot;last&quot;", "a level", "another",
        "a bar", "below", "x", "y", "z"}) {
    INFO(text);
    CHECK(count(svg, ">" + text + "<") == 1);
  }
}

TEST_CASE("a long note goes on in further rows, and moves what is below it") {
  Picture picture = example();
  const auto height = [](const std::string& svg) {
    std::smatch match;
    REQUIRE(std::regex_search(svg, match, std::regex("height=\"([0-9.]+)\"")));
    return std::stod(match[1]);
  };
  const std::string one = to_svg(picture);
  CHECK(count(one, "<tspan class=\"term\">term:</tspan> what it means<") == 1);
  picture.notes[0].text = "";
  for (int i = 0; i < 50; ++i) picture.notes[0].text += "words ";
  const std::string several = to_svg(picture);
  CHECK(count(several, "words") == 50);
  CHECK(count(several, "<tspan") == 1);
  CHECK(height(several) == Approx(height(one) + 2 * 20));
}

TEST_CASE("a picture without panels is refused") {
  CHECK(message_of<ValueError>([] { (void)to_svg({}); }) == "plot: there is nothing to be shown");
}
