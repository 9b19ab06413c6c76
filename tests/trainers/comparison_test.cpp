#include "trainers/report/comparison.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"
#include "tests/support/programs.h"

namespace fs = std::filesystem;

namespace lockstep::report {

using namespace testing;
namespace {

const std::string kTwoSteps =
    R"({"step":10,"elapsed_s":75,"samples":80,"loss":0.5,"samples_per_s":1234.5}
{"step":10,"validation_accuracy":0.75}
{"step":20,"elapsed_s":150,"samples":160,"loss":0.25,"samples_per_s":1235.5}
{"step":20,"validation_accuracy":0.5}
)";
const std::string kEndedResult =
    R"({"blas": "a", "parameters_sha256": "0123456789abcdef0123456789abcdef"})";

// A run that has ended.
fs::path ended_run(const fs::path& folder, const std::string& lines = kTwoSteps,
                   const std::string& config = "optimizer: {lr: 0.1}\ntrainer: {seed: 0}\n",
                   const std::string& result = kEndedResult) {
  fs::create_directories(folder);
  write_text(folder / "config.yaml", config);
  write_text(folder / "metrics.jsonl", lines);
  if (!result.empty()) write_text(folder / "result.json", result);
  return folder;
}

TEST_CASE("two runs of one config are equal but for time") {
  const TemporaryFolder home;
  std::string slower = kTwoSteps;
  slower.replace(slower.find("75"), 2, "99");
  slower.replace(slower.find("1234.5"), 6, "1000.5");
  slower.replace(slower.find("0.25"), 4, "0.25,\"resumed_after\":10");
  const Comparison comparison =
      compare({ended_run(home.path() / "one/a"), ended_run(home.path() / "b", slower)});
  CHECK(comparison.are_equal());
  CHECK(comparison_text(comparison, std::nullopt) ==
        table_text({{"", "a", "b"},
                    {"status", "ended", "ended"},
                    {"step", "20", "20"},
                    {"time", "2:30", "2:30"},
                    {"samples/s", "1235", "1118"},
                    {"loss", "0.25", "0.25"},
                    {"validation_accuracy", "0.5 (best 0.75 at 10)", "0.5 (best 0.75 at 10)"},
                    {"resumes", "0", "1"},
                    {"parameters_sha256", "0123456789abcdef", "0123456789abcdef"}},
                   "l") +
            "\nEqual but for time: their configs, their figures at each step and their parameters "
            "are the same.\n");
  const auto json = comparison_json(comparison);
  CHECK(json["equal_but_for_time"] == true);
  CHECK(json["differences"] == nlohmann::json::object());
  CHECK(json["runs"].size() == 2);
}

TEST_CASE("a figure is one row, which marks the best value") {
  const TemporaryFolder home;
  const fs::path a = ended_run(home.path() / "a");
  const fs::path b = ended_run(home.path() / "b",
                               R"({"step":20,"loss":0.75}
{"step":20,"validation_accuracy":0.7}
{"step":20,"best_step":10,"test_best_loss":0.5}
)");
  const std::string text = comparison_text(compare({a, b, a}), std::nullopt);
  const auto row_of = [&](const std::string& name) {
    return std::regex_replace(lines_with(name, text).at(0), std::regex(" {2,}"), "|");
  };
  CHECK(row_of("loss ") == "loss|0.25 *|0.75|0.25 *");
  CHECK(row_of("validation_accuracy") ==
        "validation_accuracy|0.5 (best 0.75 at 10) *|0.7|0.5 (best 0.75 at 10) *");
  CHECK(row_of("test_best_loss") == "test_best_loss|0.5 at 10");
  CHECK_THAT(text, ContainsSubstring("\n* is the best of its row.\nTheir configs"));
}

TEST_CASE("runs are the same where two have a figure of one step, whatever else one has") {
  const TemporaryFolder home;
  const fs::path a = ended_run(home.path() / "a");
  const auto are_same_with = [&](const std::string& lines) {
    return compare({a, ended_run(home.path() / "b", lines)}).has_same_figures;
  };
  const std::string stopped = R"({"step":15,"loss":0.375,"lr":1,"validation_accuracy":0.1})";
  CHECK(are_same_with(kTwoSteps + stopped + "\n"));
  CHECK(are_same_with("{\"step\":20,\"loss\":0.25,\"lr\":7,\"waiting_s\":3}\n"));
  CHECK(!are_same_with("{\"step\":20,\"loss\":0.125}\n"));
  CHECK(!are_same_with("{\"step\":20,\"loss\":null}\n"));
  CHECK(!are_same_with(stopped + "\n"));
  CHECK_THAT(comparison_text(compare({a, home.path() / "b"}), std::nullopt),
             ContainsSubstring(" They share no step with figures."));
  CHECK(!are_same_with(""));
  ended_run(a, "{\"step\":20,\"loss\":null}\n");
  CHECK(are_same_with("{\"step\":20,\"loss\":null}\n"));
  // A third one is compared with both, whatever steps these have.
  const auto losses = [&](const std::string& name, const std::map<int, int>& by_step) {
    std::string lines;
    for (const auto& [step, loss] : by_step)
      lines += str("{\"step\":", step, ",\"loss\":", loss, "}\n");
    return ended_run(home.path() / name, lines);
  };
  const fs::path first = losses("first", {{10, 1}, {20, 2}, {40, 4}});
  const fs::path second = losses("second", {{5, 5}, {20, 2}, {30, 3}, {50, 5}});
  const auto are_all_same = [&](const std::map<int, int>& third) {
    return compare({first, second, losses("third", third)}).has_same_figures;
  };
  CHECK(are_all_same({{1, 0}, {10, 1}, {30, 3}, {60, 6}}));
  CHECK(!are_all_same({{10, 1}, {30, 2}}));
  CHECK(!are_all_same({{40, 5}}));
}

TEST_CASE("what differs between runs is named: keys, figures, parameters") {
  const TemporaryFolder home;
  std::string other = kTwoSteps;
  other.replace(other.find("0.75"), 4, "0.25");
  const fs::path a = ended_run(home.path() / "one/run");
  const fs::path b = ended_run(home.path() / "two/run", other,
                               "optimizer: {lr: 0.2}\ntrainer: {seed: 0, new: [1, 2]}\n",
                               R"({"blas": "b", "parameters_sha256": "1"})");
  const Comparison both = compare({a, b});
  CHECK(both.differing == std::vector<std::string>{"optimizer.lr", "trainer.new"});
  const std::string text = comparison_text(both, std::nullopt);
  const std::vector<std::string> lines = lines_of(text);
  CHECK(lines_with(a.string() + "  " + b.string(), lines[0]).size() == 1);  // of one name
  CHECK_THAT(text, ContainsSubstring("\noptimizer.lr         0.1 ") &&
                       ContainsSubstring("  [1, 2]\n\nstatus ") && ContainsSubstring("\nblas  "));
  CHECK(lines.back() ==
        "Their configs differ in 2 keys. Their figures differ. Their parameters differ.");
  const auto json = comparison_json(both);
  CHECK(json["equal_but_for_time"] == false);
  CHECK(json["same_figures"] == false);
  CHECK(json["same_parameters"] == false);
  CHECK(json["differences"] ==
        nlohmann::json{{"optimizer.lr", {"0.1", "0.2"}}, {"trainer.new", {nullptr, "[1, 2]"}}});
  const Comparison unfinished = compare(
      {a, a, ended_run(home.path() / "going", kTwoSteps, read_text(a / "config.yaml"), "")});
  CHECK(!unfinished.are_equal());
  CHECK(lines_of(comparison_text(unfinished, 80)).back() ==
        "Their configs are the same. Their figures are the same at each step that they share. Not "
        "all have ended: only then are parameters compared.");
  ended_run(a, "no line\n");
  CHECK_THAT(message_of<DataError>([&] {
               (void)compare({b, a});
             }),
             ContainsSubstring("metrics.jsonl:1: a line of metrics is a JSON object"));
}

TEST_CASE("runs that are too wide for a terminal are compared in several tables") {
  const TemporaryFolder home;
  std::vector<fs::path> runs;
  for (const std::string name : {"first", "second", "third\n<script>", "fourth"}) {
    runs.push_back(ended_run(home.path() / name, kTwoSteps,
                             str("data: {root: /", std::string(100, name[1]), "}\n")));
  }
  const std::string text = comparison_text(compare(runs), 72);
  for (const std::string& line : lines_of(text)) {
    INFO(line);
    CHECK((line.size() <= 74 || line.starts_with("Their ")));  // "…" has three bytes
  }
  CHECK(lines_with("data.root", text).size() == 4);  // each alone
  const std::string narrow = comparison_text(compare({runs[0], runs[1]}), 30);
  CHECK_THAT(narrow, ContainsSubstring("data.root            /iiiiiiiiiii…\n"));
  for (fs::path& run : runs) ended_run(run, kTwoSteps);
  CHECK(lines_with("status ", comparison_text(compare(runs), 72)).size() == 2);
  CHECK_THAT(comparison_text(compare(runs), std::nullopt),
             ContainsSubstring("  third\\x0a<script>      fourth\n"));
}

TEST_CASE("a page of runs has their curves over each other, and the tables") {
  const TemporaryFolder home;
  const fs::path a = ended_run(home.path() / "<script><b>");
  const fs::path b = ended_run(home.path() / "b", "{\"step\":4,\"loss\":3,\"test_loss\":2}\n",
                               "optimizer: {lr: 0.2}\n");
  const Page page = comparison_page(compare({a, b}));
  REQUIRE(page.charts.size() == 4);
  CHECK(page.charts[0].name == "loss, training");
  REQUIRE(page.charts[0].curves.size() == 2);
  CHECK(page.charts[0].curves[0].name == "<script><b>");
  CHECK(page.charts[0].curves[0].points.size() == 2);
  CHECK(page.charts[0].curves[1].name == "b");
  CHECK(page.charts[0].curves[1].points.at(0).value == 3);
  const auto names = mapped(page.charts, &Chart::name);
  CHECK(names == std::vector<std::string>{"loss, training", "accuracy, validation", "samples/s",
                                          "loss, test"});
  REQUIRE(page.tables.size() == 2);
  CHECK(page.tables[0].rows == std::vector<std::vector<std::string>>{{"optimizer.lr", "0.1", "0.2"},
                                                                     {"trainer.seed", "0", ""}});
  CHECK(page.tables[1].head == std::vector<std::string>{"", "<script><b>", "b"});
  CHECK(page_text(page).find("<script><b>") == std::string::npos);
  CHECK(page.title == "<script><b>, b");
  CHECK(comparison_page(compare({b, b, b, b, b, b})).title.ends_with("b and 1 more"));
  std::string lines;  // more than are kept
  for (int step = 1; step <= 30'000; ++step)
    lines += str("{\"step\":", step, ",\"loss\":", step == 12'345 ? 9 : step % 2, "}\n");
  const auto longer = comparison_page(compare({ended_run(a, lines), b})).charts.at(0).curves.at(0);
  CHECK(longer.points.size() <= 3 * CurvePoints::kMostParts + 2);
  CHECK(std::ranges::max_element(longer.points, {}, &Point::value)->step == 12'345);
}

}  // namespace
}  // namespace lockstep::report
