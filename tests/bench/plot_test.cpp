// plot.py by hand, on tables that are not bench's.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "tests/bench/plotted.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/occurrences.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// By hosts and stage: times that halve, and what breaks.
std::string plan() {
  std::string rows;
  for (const int hosts : {1, 2, 4, 8, 64}) {
    for (const int stage : {0, 3}) {
      rows += str(rows.empty() ? "" : ",", R"({"hosts": )", hosts, R"(, "stage": )", stage,
                  R"(, "step_seconds": )", 1.0 / hosts, R"(, "efficiency": 0.5, "breaks": null})");
    }
  }
  return "[" + rows + "]";
}

}  // namespace

TEST_CASE(
    "a plain table has a chart a number over its largest key, and a line for each other key") {
  const std::string svg = plotted(plan());
  for (const std::string text : {"step time", "efficiency", "stage 0", "stage 3"})
    CHECK(count(svg, ">" + text + "<") == 1);
  for (const std::string text : {"hosts", "1", "8", "64"}) CHECK(count(svg, ">" + text + "<") == 2);
  CHECK(count(svg, "breaks") == 0);
  CHECK(count(plotted(plan(), {"--columns", "efficiency"}), ">step time<") == 0);
}

TEST_CASE("a table whose keys are words has bars") {
  const std::string svg = plotted(R"({"model": "cnn", "classes": [
      {"class": "boot", "recall": 0.75, "peak_bytes": 3000000},
      {"class": "shirt", "recall": 0.5, "peak_bytes": 2000000}]})");
  for (const std::string text : {"recall", "peak bytes", "0.75", "2 MB", "cnn"})
    CHECK(count(svg, ">" + text + "<") >= 1);
  for (const std::string text : {"boot", "shirt", "classes"})
    CHECK(count(svg, ">" + text + "<") == 2);
}

TEST_CASE("what is no finite number is left out, and a key may have numbers and words") {
  const std::string svg = plotted(R"([
      {"case": 1, "step_seconds": {"median": 1, "lower_quartile": null, "upper_quartile": 2}},
      {"case": 2, "step_seconds": {"median": null, "lower_quartile": 1, "upper_quartile": 2}},
      {"case": 3, "step_seconds": {"median": Infinity}},
      {"case": "last", "step_seconds": {"median": 4}}])");
  for (const std::string text : {"case 1", "last", "1 s", "4 s", "step time"}) {
    INFO(text);
    CHECK(count(svg, ">" + text + "<") >= 1);
  }
  CHECK(count(svg, ">case 2<") + count(svg, ">case 3<") == 0);
  CHECK(count(plotted(R"([{"case": "a", "loss": NaN}, {"case": "b", "loss": 1e999},
                          {"case": "c", "loss": 7.25}])"),
              ">7.25<") == 1);
}

TEST_CASE("lists in rows that have not the same columns are drawn") {
  CHECK(count(plotted(R"({"runs": [{"a": 1, "steps": [{"step": 1, "loss": 2}]},
                                   {"b": 2, "steps": [{"step": 2, "loss": 3}]}]})"),
              ">loss<") == 1);
}

TEST_CASE("a picture is an SVG, PNG or PDF, as its name ends, and takes the place of an old one") {
  const TemporaryFolder folder;
  const std::string table = folder.write("table.json", plan());
  for (const auto& [name, begin] : std::vector<std::pair<std::string, std::string>>{
           {"a.svg", "<?xml"}, {"a.png", "\x89PNG"}, {"a.pdf", "%PDF"}}) {
    const std::string picture = folder.write(name, "old");
    CHECK(run_program(plot_command({table, picture})).status == 0);
    CHECK(read_text(picture).rfind(begin, 0) == 0);
  }
  CHECK(entries(folder.path()) == 1 + 3);
}

TEST_CASE("what cannot be drawn is said in a line, and leaves the old picture") {
  const TemporaryFolder folder;
  const std::string picture = folder.write("a.svg", "old");
  for (const auto& [json, reason] : std::vector<std::pair<std::string, std::string>>{
           {"{", "Expecting property name"},
           {"{}", "there is no table with numbers"},
           {R"([{"loss": Infinity}, {"loss": null}])", "there is no table with numbers"},
           {str(R"([{"bytes": 1)", std::string(400, '0'),
                R"(, "loss": 1}, {"bytes": 2, "loss": 1}])"),
            "int too large"},
           {R"([{"word": "a"}])", "there is no table with numbers"}}) {
    const std::string table = folder.write("table.json", json);
    const Ended end = run_program(plot_command({table, picture}));
    CHECK(end.status == 1);
    CHECK(end.err.rfind("plot.py: " + table + ": " + reason, 0) == 0);
    CHECK(lines_of(end.err).size() == 1);
  }
  const std::string table = folder.write("table.json", plan());
  CHECK(run_program(plot_command({"--columns", "loss", table, picture})).err ==
        "plot.py: " + table + ": no table has the column loss\n");
  CHECK(run_program(plot_command({table, "a.gif"})).status == 2);
  CHECK(read_text(picture) == "old");
  CHECK(entries(folder.path()) == 2);
  const std::filesystem::path taken = folder.path() / "folder.svg";
  std::filesystem::create_directory(taken);
  const Ended end = run_program(plot_command({table, taken}));
  CHECK(end.status == 1);
  CHECK_THAT(end.err, ContainsSubstring("Is a directory"));
  CHECK(lines_of(end.err).size() == 1);
  CHECK(entries(folder.path()) == 3);
}
