#include "trainers/report/report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/telemetry/run_folder.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace fs = std::filesystem;

namespace lockstep::report {

using namespace testing;
namespace {

using Json = nlohmann::json;

constexpr const char* kHostile = "</script><script>alert(1)</script><!-- \xff\" & ";

std::vector<Point> points_of(const std::vector<double>& values) {
  std::vector<Point> points;
  for (const double value : values) {
    const std::int64_t step = std::ssize(points) + 1;
    points.push_back({step, 8 * step, 0.5 * static_cast<double>(step), value});
  }
  return points;
}

// What a page shows.
Json data_of(const std::string& page) {
  constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(kBegin);
  REQUIRE(begin != std::string::npos);
  const std::size_t end = page.find("</script>", begin);
  return Json::parse(page.substr(begin + kBegin.size(), end - begin - kBegin.size()));
}

int count(const std::string& text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("thinned curves keep their ends, their extremes and where they are no number") {
  std::mt19937 draw(7);
  std::uniform_real_distribution<double> between(0, 1);
  for (const std::size_t size : {0U, 1U, 2U, 8U, 9U, 1'000U, 65'537U}) {
    std::vector<double> values(size);
    for (double& value : values) value = between(draw);
    std::vector<std::size_t> special;
    if (size > 8) {
      special = {size / 3, size / 2, size - 3};
      values[special[0]] = -5;
      values[special[1]] = 1e6;
      values[special[2]] = std::numeric_limits<double>::quiet_NaN();
      special.insert(special.end(), {0, size - 1});
    }
    for (const std::size_t most : {8U, 100U, 4'000U}) {
      const auto kept = thinned(points_of(values), most);
      CHECK(kept.size() <= most);
      if (size <= most) CHECK(kept.size() == size);
      CHECK(std::ranges::is_sorted(kept));
      CHECK(std::ranges::adjacent_find(kept) == kept.end());
      for (const std::size_t each : special) CHECK(std::ranges::count(kept, each) == 1);
    }
  }
}

TEST_CASE(
    "of long curves the ends, extremes and missing points of parts are kept, of short ones all") {
  std::mt19937 draw(8);
  std::uniform_real_distribution<double> between(0, 1);
  const std::size_t most = CurvePoints::kMostParts;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, most, most + 1, 5 * most, 9 * most + 7}) {
    INFO(size);
    std::vector<double> values(size);
    for (double& value : values) value = between(draw);
    if (size > most) {
      values[1] = -5;
      values[size / 2] = 1e6;
      values[size - 2] = std::numeric_limits<double>::quiet_NaN();
    }
    const std::vector<Point> all = points_of(values);
    CurvePoints curve;
    for (const Point& point : all) curve.add(point);
    const auto kept = mapped(curve.points(), &Point::step);
    const auto steps = mapped(all, &Point::step);
    if (size <= most) {
      CHECK(kept == steps);
      continue;
    }
    CHECK(kept.size() <= 3 * most + 2);
    CHECK(kept.size() > most);
    CHECK(std::ranges::is_sorted(kept));
    CHECK(std::ranges::adjacent_find(kept) == kept.end());
    for (const std::size_t each : {std::size_t{0}, std::size_t{1}, size / 2, size - 2, size - 1}) {
      CHECK(std::ranges::count(kept, steps[each]) == 1);
    }
  }
}

TEST_CASE("what a run names can be no more than text of its report") {
  const std::string hostile = kHostile;
  const Page page{.title = hostile,
                  .facts = {{hostile, hostile}},
                  .charts = {{hostile, {{hostile, points_of({1})}}}},
                  .marks = {{{1, 8, 0.5, 0}, hostile, hostile}},
                  .tables = {{hostile, {hostile}, {{hostile}}, hostile, true, {hostile}}}};
  const std::string text = page_text(page);
  CHECK(count(text, "<script") == count(page_text({}), "<script"));
  CHECK(count(text, "</script") == count(page_text({}), "</script"));
  CHECK(count(text, "<!--") == 0);
  const Json data = data_of(text);
  const std::string shown = "</script><script>alert(1)</script><!-- \xef\xbf\xbd\" & ";
  for (const Json& each :
       {data["title"], data["facts"][0][0], data["facts"][0][1], data["charts"][0]["name"],
        data["charts"][0]["series"][0]["name"], data["marks"][0]["kind"], data["marks"][0]["text"],
        data["tables"][0]["title"], data["tables"][0]["head"][0], data["tables"][0]["rows"][0][0],
        data["tables"][0]["note"], data["tables"][0]["pictures"][0]}) {
    CHECK(each == shown);
  }
}

TEST_CASE("a report has all that it shows, and needs nothing from elsewhere") {
  const std::string text = page_text({});
  CHECK_THAT(text, ContainsSubstring("Dygraph") && ContainsSubstring(".dygraph-axis-label") &&
                       ContainsSubstring("Permission is hereby granted, free of charge") &&
                       ContainsSubstring("default-src 'none'"));
  for (const char* elsewhere :
       {"{{page", "{{dygraph", "{{data", "sourceMappingURL", "<script src", "<link rel=\"style",
        "url(", "@import", "XMLHttpRequest(\"", "src=\"http", "href=\"http"}) {
    INFO(elsewhere);
    // What dygraphs can load (a file in place of its data) the page's policy refuses.
    CHECK(count(text, elsewhere) == 0);
  }
  CHECK(text.size() < 200'000);
}

TEST_CASE("a report is at most 3 MB, whatever it shows, and says what it leaves out") {
  std::vector<double> values(50'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i) / 7);
  const Curve curve{"a", points_of(values)};
  CHECK(page_text({.charts = {{"one", {curve}}}}).size() < 400'000);
  Page wide{.charts = {{"many", std::vector<Curve>(3, curve)}, {"none", {}}}};
  for (int i = 0; i < 2'000; ++i) {
    wide.charts.push_back({str("chart ", i), {{std::string(100, '<'), points_of({1, 2})}}});
  }
  const Json few = data_of(page_text(wide));
  CHECK(few["left_out"] == 1'003);
  CHECK(few["charts"].size() == 998);
  CHECK(few["charts"][0]["series"].size() == 3);
  CHECK(few["charts"][0]["series"][0]["values"].back() == Approx(values.back()));

  wide.tables.assign(30, {"t", {"k"}, {1'500, {std::string(2'000, 'x'), "y"}}});
  wide.tables[0].pictures.assign(100, std::string(50'000, 'p'));
  wide.tables[0].pictures[0] += 'p';
  wide.marks.assign(10'000, {{}, "skipped", std::string(2'000, 'x')});
  const std::string text = page_text(wide);
  CHECK(text.size() <= kMostPageBytes);
  const Json data = data_of(text);
  CHECK_THAT(data["tables"][0]["rows"].back()[0].get<std::string>(),
             ContainsSubstring("… and ") && ContainsSubstring(" more"));
  CHECK(data["tables"][0]["pictures"][0] == "");  // it is too long, and can't be cut
}

TEST_CASE("a report shows stalls where they were, and before a run's end how it runs") {
  const TemporaryFolder home;
  const fs::path run = home.path() / "run";
  fs::create_directories(run);
  write_text(run / "config.yaml", "model:\n  name: mlp\n");
  write_text(run / "metrics.jsonl", R"({"step":10,"time":1000.0,"elapsed_s":5.0,"samples":80}
{"step":20,"time":1030.0,"elapsed_s":35.0,"samples":160}
{"step":30,"time":2000.0,"elapsed_s":40.0,"samples":240,"resumed_after":20}
)");
  write_text(run / "events.jsonl", R"({"time":990.0,"event":"started","steps":0,"workers":2}
{"time":1020.0,"event":"stalled","text":"stalled for 15 s: <b>"}
{"time":1500.0,"event":"stalled","text":"while it was down"}
{"time":1990.0,"event":"started","steps":20,"workers":1,"command":"train --resume auto","changes":["workers was 2, is 1"]}
{"time":2016.5,"event":"stalled","text":"stalled again"}
{"time":2017.0,"ev)");
  const Page page = report_of(run);
  CHECK(join(mapped(page.marks,
                    [](const Mark& mark) {
                      return str(mark.kind, " ", mark.at.step, " ", mark.at.samples, " ",
                                 mark.at.elapsed_s, " ", mark.text);
                    }),
             "\n") ==
        "stalled 10 80 25 stalled for 15 s: <b>\n"
        "stalled 20 160 35 while it was down\n"
        "resumed 20 160 35 went on after step 20: workers was 2, is 1\n"
        "stalled 30 240 56.5 stalled again");
  REQUIRE(page.tables.size() == 2);
  CHECK(page.tables[0].title == "How it ran");
  CHECK(page.tables[0].rows ==
        std::vector<std::vector<std::string>>{{"workers", "1"},
                                              {"command", "train --resume auto"},
                                              {"changes", "workers was 2, is 1"}});
  write_text(run / "events.jsonl", "{\"time\":1}\n");
  CHECK_THAT(message_of<DataError>([&] { (void)report_of(run); }),
             ContainsSubstring("events.jsonl:1: an event is a JSON object with a time and"));
}

TEST_CASE("a run's report has its curves by name, what happened, its memory and its config") {
  const TemporaryFolder home;
  const fs::path run = home.path() / "<b>run";
  fs::create_directories(run);
  write_text(run / "config.yaml", "model:\n  name: mlp\nparallel:\n  replicas: 2\n");
  write_text(
      run / "metrics.jsonl",
      R"({"step":1,"elapsed_s":0.5,"samples":8,"epoch":1,"loss":2.0,"lr":0.1,"samples_per_s":16.0,"parts":{"forward":0.25,"backward":0.5},"waiting_s":0.1,"memory":3145728,"gflop_per_s":2.0,"replica_own_s":{"0":0.25,"1":0.5,"10":1,"2":2}}
{"step":2,"elapsed_s":1.5,"samples":16,"epoch":1,"loss":null,"lr":0.1,"samples_per_s":16.0,"skipped_steps":1}
{"step":2,"elapsed_s":1.75,"samples":16,"weights":"trained","eval_loss":2.5,"eval_accuracy":0.5,"test_loss":2.5,"test_accuracy":0.5}
{"step":2,"elapsed_s":1.75,"samples":16,"best_step":2,"test_best_accuracy":0.5}
{"step":3,"elapsed_s":2.5,"samples":24,"epoch":1,"loss":1.0,"lr":0.1,"samples_per_s":16.0,"skipped_steps":1,"resumed_after":2,"restarts":1}
)");
  write_text(run / "events.jsonl",
             R"({"time":1,"event":"started","replica_hosts":[0,1,1,1,1,1,1,1,1,1,1]})"
             "\n");
  Page page = report_of(run);
  CHECK(page.title == "<b>run");
  const auto names = mapped(page.charts, [](const Chart& chart) {
    return str(chart.name, ": ", join(mapped(chart.curves, &Curve::name)));
  });
  CHECK(join(names, "; ") ==
        "loss: training, test; accuracy: test; learning rate: learning rate; samples/s: samples/s; "
        "parts of a step (s): forward, backward; waiting in a step (s): waiting in a step (s); "
        "memory (MiB): memory (MiB); GFLOP/s: GFLOP/s; "
        "a replica's own work in a step (s): replica 0 (host 0), replica 1 (host 1), replica 2 "
        "(host 1), replica 10 (host 1)");
  CHECK(page.charts[6].curves[0].points.at(0).value == 3);
  const Curve& loss = page.charts[0].curves[0];
  REQUIRE(loss.points.size() == 3);
  CHECK(std::isnan(loss.points[1].value));
  CHECK(loss.points[2].elapsed_s == 2.5);
  REQUIRE(mapped(page.marks, &Mark::kind) == std::vector<std::string>{"skipped", "restarted"});
  CHECK(mapped(page.marks, [](const Mark& mark) { return mark.at.step; }) ==
        std::vector<std::int64_t>{2, 2});
  CHECK_THAT(page.marks[0].text, ContainsSubstring("1 step skipped"));
  CHECK(join(mapped(page.facts, [](const auto& fact) { return fact.first + ": " + fact.second; }),
             "; ") ==
        "status: failed; step: 3; time: 0:03; loss: 1; test accuracy: 0.5 at 2; test loss: 2.5 at "
        "2; test best "
        "accuracy: 0.5 at 2; replicas: 2");
  REQUIRE(mapped(page.tables, &Table::title) ==
          std::vector<std::string>{"Replicas", "Hosts", "Config"});
  CHECK(page.tables[0].rows[2] == std::vector<std::string>{"2", "1", "2 s", "", ""});
  CHECK(page.tables[1].rows[1] == std::vector<std::string>{"1", "2", "1.25 s", "", ""});
  CHECK(page.tables[2].rows ==
        std::vector<std::vector<std::string>>{{"model.name", "mlp"}, {"parallel.replicas", "2"}});
  write_text(run / "result.json",
             R"({"steps": 3, "eval": {"loss": 2.5}, "test": {"loss": 2.5}, "libtorch": "1.13.0",
                 "changes": ["a was 1, is 2", "b was 2, is 1"], "parameters": {"w": [1, 2]},
                 "memory": {"predicted": {"gradients": 1048576, "host": 2097152},
                            "measured": {"gradients": 1048576, "host": 3145728}, "rest": "<odd",
                            "replicas": [{"host": 0, "resident": 1048576},
                                         {"host": 1, "resident": 2097152},
                                         {"host": 1, "resident": 1048576}]}})");
  page = report_of(run);
  const auto rows = [&](const std::string& title) {
    const auto table = std::ranges::find(page.tables, title, &Table::title);
    REQUIRE(table != page.tables.end());
    return join(mapped(table->rows, [](const auto& row) { return join(row, " | "); }), "\n");
  };
  CHECK(rows("Figures") == "test | loss | 2.5");
  CHECK(rows("Memory") ==
        "of a replica: gradients | 1.0 MiB | 1.0 MiB\nall of the host | 2.0 MiB | 3.0 MiB\n"
        "rest |  | <odd");
  CHECK(rows("Replicas") ==
        "0 | 0 | 250 ms |  | 1.0 MiB\n1 | 1 | 500 ms |  | 2.0 MiB\n2 | 1 | 2 s |  | 1.0 MiB");
  CHECK(rows("Hosts") == "0 | 1 | 250 ms |  | 1.0 MiB\n1 | 2 | 1.25 s |  | 3.0 MiB");
  CHECK(rows("Parameters") == "w | 1; 2");
  CHECK(rows("How it ran") ==
        "steps | 3\nlibtorch | 1.13.0\nchanges | a was 1, is 2; b was 2, is 1");
  CHECK(page.facts[0].second == "ended");

  const fs::path seen = run / kEvaluationFiles[1];
  write_text(seen,
             R"json({"set": "test", "step": 3, "samples": 7, "class_names": ["a", "</script>"],
                 "confusion": [[3, 1, 0], [0, 2, 1]], "worst": [
                 {"index": 5, "sample": "sample 5 ('a.png')", "target": 1, "target_name": "</script>",
                  "prediction": 0, "prediction_name": "a", "loss": 2.5, "picture": "data:,x"},
                 {"index": 6, "sample": "sample 6", "target": 1, "target_name": "</script>", "loss": null}],
                 "texts": [{"prompt": "To be", "text": " <!--\n"}]})json");
  write_text(run / kEvaluationFiles[0],
             R"({"set": "validation", "step": 2, "confused": [
                 {"target": 100, "prediction": 7, "prediction_name": "h", "count": 4}]})");
  page = report_of(run);
  CHECK(rows("Targets and predictions, test set, step 3") ==
        "0 a | 3 | 1 | 0\n1 </script> | 0 | 2 | 1");
  CHECK(rows("Worst samples, test set, step 3") ==
        "sample 5 ('a.png') | 1 </script> | 0 a | 2.5\nsample 6 | 1 </script> | none | not finite");
  CHECK(rows("Texts, test set, step 3") == "To be |  <!--\n");
  CHECK(rows("Largest confusions, validation set, step 2") == "100 | 7 h | 4");
  CHECK(page.tables[1].title == "Largest confusions, validation set, step 2");
  CHECK(page.tables[2].is_confusion);
  CHECK(page.tables[2].head == std::vector<std::string>{"target", "0 a", "1 </script>", "none"});
  CHECK(page.tables[3].pictures == std::vector<std::string>{"data:,x"});
  // A run that went on from before has not come to it yet.
  write_text(run / kEvaluationFiles[0], R"({"set": "validation", "step": 4, "no_texts": "why"})");
  CHECK(report_of(run).tables[1].title == "Targets and predictions, test set, step 3");
  for (const char* const damaged : {"[]", "{}", R"({"set": "test", "step": 3, "worst": [{}]})"}) {
    write_text(seen, damaged);
    CHECK_THAT(message_of<DataError>([&] { (void)report_of(run); }),
               ContainsSubstring(seen.string() + " is damaged"));
  }
  fs::remove(seen);

  const fs::path file = home.path() / "page.html";
  write_text(file, "an old one");
  write_report(run, file);
  CHECK(data_of(read_text(file))["title"] == "<b>run");
  CHECK_FALSE(fs::exists(run / kReportFile));
  CHECK_THAT(message_of<Error>([&] { write_report(run, home.path() / "none" / "page.html"); }),
             ContainsSubstring("page.html"));
}

TEST_CASE("a report names the slow replica or link, what it costs, and since when") {
  const TemporaryFolder home;
  const fs::path run = home.path() / "run";
  fs::create_directories(run);
  write_text(run / "config.yaml", "model:\n  name: mlp\n");
  const std::string fast = R"({"step":100,"lr":0.1,"parts":{"forward":0.25}})"
                           "\n";
  const std::string slow =
      R"({"step":200,"lr":0.1,"parts":{"forward":0.25},"slow_replica":1,"slow_replica_s":0.00148,"slow_replica_share":0.222})"
      "\n"
      R"({"step":200,"test_loss":0.5})"
      "\n";
  const std::string sentence =
      "replica 1 makes the others wait: at their pace the median step takes 1.48 ms (22 %) less";
  const std::string link =
      R"({"step":300,"lr":0.1,"parts":{"forward":0.25},"slow_link":"host 2's link","slow_link_s":0.05,"slow_link_share":0.5})"
      "\n";
  const std::string of_link =
      "host 2's link is slow: with the best one's rate the median step takes 50 ms (50 %) less";
  const auto check = [&](const std::string& lines, const std::string& expected,
                         const std::string& what = "slow replica") {
    write_text(run / "metrics.jsonl", lines);
    const Page page = report_of(run);
    const auto fact = std::ranges::find(page.facts, what, [](auto& f) { return f.first; });
    CHECK((fact == page.facts.end() ? "" : fact->second) == expected);
    const auto parts = std::ranges::find(page.charts, "parts of a step (s)", &Chart::name);
    REQUIRE(parts != page.charts.end());
    CHECK(parts->note == expected);
    const auto place = static_cast<std::size_t>(parts - page.charts.begin());
    CHECK(data_of(page_text(page))["charts"][place]["note"] == expected);
    REQUIRE(page.marks.size() == (expected.empty() ? 0 : 1));
    if (!expected.empty())
      CHECK(page.marks[0].text == expected.substr(0, expected.find(", until")));
  };
  check(fast, "");
  check(fast + slow + slow, sentence);
  check(slow + fast, sentence + ", until step 200");
  check(fast + link, of_link, "slow link");
  check(link + fast, of_link + ", until step 300", "slow link");
}

}  // namespace
}  // namespace lockstep::report
