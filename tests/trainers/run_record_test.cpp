#include "trainers/report/run_record.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/telemetry/failure_record.h"
#include "framework/telemetry/run_folder.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"
#include "trainers/report/report.h"
#include "trainers/report/run_table.h"

namespace fs = std::filesystem;

namespace lockstep::report {

using namespace testing;
using namespace std::chrono_literals;
namespace {

const std::string kLines =
    R"({"step":1,"elapsed_s":0.5,"samples":8,"loss":2.0,"lr":0.1,"parts":{"forward":0.25,"x":[3,4]}}
{"step":2,"elapsed_s":1.5,"samples":16,"loss":null,"lr":0.1,"late":true}
{"step":2,"elapsed_s":1.75,"samples":16,"weights":"averaged","validation_accuracy":0.5}
{"step":3,"loss":1.0,"lr":0.1}
)";

// A folder with a config and these lines of metrics.
fs::path made_run(const fs::path& folder, const std::string& lines = kLines) {
  fs::create_directories(folder);
  write_text(folder / "config.yaml", "model:\n  name: mlp\n");
  write_text(folder / "metrics.jsonl", lines);
  return folder;
}

TEST_CASE("a run's metrics are series by name, in short and point by point") {
  const TemporaryFolder home;
  const fs::path folder = made_run(home.path() / "run");
  std::vector<MetricsLine> lines;
  const RunRecord run = read_run(folder, [&](const MetricsLine& line) { lines.push_back(line); });
  CHECK(run.lines == 4);
  CHECK(run.end.step == 3);
  CHECK(run.end.samples == 16);  // it does not say: those before
  const SeriesSummary& loss = run.series.at("loss");
  CHECK(loss.points == 3);
  CHECK(loss.last.value == 1.0);
  CHECK(loss.least->step == 3);
  CHECK(loss.greatest->step == 1);
  CHECK(loss.greatest->elapsed_s == 0.5);
  CHECK(run.series.at("parts.forward").last.value == 0.25);
  CHECK(run.series.at("parts.x.1").last.value == 4);
  CHECK(run.series.at("late").last.value == 1);
  CHECK(run.series.size() == 7);
  REQUIRE(lines.size() == 4);
  CHECK(std::isnan(lines[1].numbers.at(0).second));
  CHECK(lines[2].texts == decltype(lines[2].texts){{"weights", "averaged"}});
  CHECK(lines[2].elapsed_s == 1.75);
}

TEST_CASE(
    "figures of the best step stand at its step, and a stopped run at that of its checkpoint") {
  const TemporaryFolder home;
  const fs::path folder = made_run(home.path() / "run",
                                   kLines + R"({"step":3,"best_step":2,"test_best_loss":0.5,"x":1})"
                                            "\n");
  fs::create_directories(folder / "checkpoints/step-00000005");
  const RunRecord run = read_run(folder);
  CHECK(run.series.at("test_best_loss").last.step == 2);
  CHECK(run.series.at("x").last.step == 3);
  CHECK(run.end.step == 5);
}

TEST_CASE("a last line that was cut off is passed over, any other damage is named") {
  const TemporaryFolder home;
  CHECK(read_run(made_run(home.path() / "cut", kLines + R"({"step":4,"lo)")).lines == 4);
  CHECK(read_run(made_run(home.path() / "empty", "")).lines == 0);
  // Longer than what is read at once.
  const std::string text(3 << 20, 'x');
  CHECK(read_run(made_run(home.path() / "long", str(R"({"step":1,"t":")", text, "\"}\n", kLines)))
            .lines == 5);
  std::string deep = R"({"step":1,"a":)";
  for (int i = 0; i < 100; ++i) deep += R"({"a":)";
  for (const std::string& damaged :
       {std::string(R"({"step":4,"lo)"), std::string("[1]"), std::string("7"), std::string(""),
        std::string(R"({"loss":1})"), std::string(R"({"step":1.5})"), std::string("{}}"),
        deep + "1" + std::string(101, '}')}) {
    const fs::path folder = made_run(home.path() / "damaged", kLines + damaged + "\n" + kLines);
    INFO(damaged);
    CHECK_THAT(message_of<DataError>([&] { (void)read_run(folder); }),
               ContainsSubstring(str((folder / "metrics.jsonl").string(),
                                     ":5: a line of metrics is a JSON object with a step, not '")));
  }
}

TEST_CASE("a run's config is values by key, each on one line") {
  const TemporaryFolder home;
  const fs::path folder = made_run(home.path() / "run");
  write_text(folder / "config.yaml",
             "model: {name: mlp, hidden: [1024, 16]}\noptimizer:\n  lr: 1.0e-08\n  groups:\n"
             "    - {pattern: \"*.b\", lr_scale: 0.5}\ndata:\n  root: \"a\\nb\"\n  none: null\n"
             "  empty: {}\n");
  const RunRecord run = read_run(folder);
  CHECK(run.config == std::map<std::string, std::string>{
                          {"model.name", "mlp"},
                          {"model.hidden", "[1024, 16]"},
                          {"optimizer.lr", "1.0e-08"},
                          {"optimizer.groups", R"([{pattern: "*.b", lr_scale: 0.5}])"},
                          {"data.root", R"("a\x0ab")"},
                          {"data.none", "null"},
                          {"data.empty", "{}"}});
  write_text(folder / "config.yaml", "model: {");
  CHECK_THAT(message_of<ValueError>([&] { (void)read_run(folder); }),
             ContainsSubstring((folder / "config.yaml").string() + ":1:"));
}

TEST_CASE("hostile files of a run are refused at once, and hold up no list of runs") {
  const TemporaryFolder home;
  const auto damage = [&](const std::string& file, const std::string& text) {
    const fs::path folder = made_run(home.path() / "run");
    fs::last_write_time(folder / "config.yaml", fs::file_time_type::clock::now() - 1h);
    write_text(folder / file, text);
    const std::string said = listed_run(folder).damage;
    CHECK_THAT(said,
               ContainsSubstring((folder / file).string()) && !ContainsSubstring("json.exception"));
    fs::resize_file(folder / file, std::uintmax_t{1} << 37);
    CHECK_THAT(listed_run(folder).damage, ContainsSubstring((folder / file).string()));
    fs::remove(folder / file);
    ::mkfifo((folder / file).c_str(), 0600);
    CHECK_THAT(listed_run(folder).damage, ContainsSubstring("it is a FIFO, not a file"));
    fs::remove(folder / file);
    return said;
  };
  const std::string deep = "{\"a\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  CHECK_THAT(damage("result.json", deep), ContainsSubstring("it is no JSON object"));
  CHECK_THAT(damage("failure.json", deep), ContainsSubstring("'time' is missing"));
  CHECK_THAT(damage("failure.json", R"({"time":"","verdict":3})"),
             ContainsSubstring("'verdict' is of the wrong kind: 3"));
  (void)damage("metrics.jsonl", deep + "\n");
  std::string names = R"({"step":1)";
  for (int i = 0; i < 300'000; ++i) names += str(",\"validation_", i, "\":1");
  CHECK_THAT(damage("metrics.jsonl", names + "}\n"),
             ContainsSubstring(" has more than 10000 names"));
  CHECK_THAT(damage("result.json", names + "}"), ContainsSubstring("it is no JSON object"));
  CHECK_THAT(damage("config.yaml", "a: [" + std::string(1 << 20, ',') + "]"),
             ContainsSubstring("and the most are 1048576"));
  std::string aliases = "a0: &a0 [x]\n";
  for (int i = 1; i < 64; ++i)
    aliases += str("a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  CHECK_THAT(damage("config.yaml", aliases), ContainsSubstring("more than 100000 values"));

  const fs::path folder = made_run(home.path() / "run");
  write_text(folder / "events.jsonl", "{\"time\":1,\"event\":\"started\",\"a\":" + deep + "}\n");
  CHECK_THAT(message_of<DataError>([&] { (void)report_of(folder); }),
             ContainsSubstring("events.jsonl:1: an event is a JSON object"));
  fs::remove(folder / "events.jsonl");
  write_text(folder / "result.json", R"({"memory":{"replicas":[{"host":"x"}]}})");
  CHECK_THAT(message_of<DataError>([&] { (void)report_of(folder); }),
             ContainsSubstring("result.json is damaged: memory.replicas.0.host is \"x\""));
  fs::remove(folder / "result.json");
  write_text(folder / "evaluation_test.json", R"({"step":1,"set":[]})");
  CHECK_THAT(message_of<DataError>([&] { (void)report_of(folder); }),
             ContainsSubstring("evaluation_test.json is damaged: 'set' is of the wrong kind: []"));
}

TEST_CASE("what has become of a run follows from its lock, its result and its checkpoints") {
  const TemporaryFolder home;
  const fs::path folder = home.path() / "run";
  CHECK(message_of<ValueError>([&] { (void)read_run(folder); }) ==
        folder.string() + " is no run's folder: it has no config.yaml");
  {
    const RunFolderLock lock = claim_run_folder(folder, "a: 1\n");
    CHECK(read_run(folder).status == RunStatus::running);
    fs::create_directories(folder / "checkpoints/step-00000020");
    fs::create_directories(folder / "checkpoints/step-00000040");
    fs::create_directories(folder / "checkpoints/aside-step-00000060");
    CHECK(read_run(folder).status == RunStatus::running);
  }
  RunRecord run = read_run(folder);
  CHECK(run.status == RunStatus::stopped);
  CHECK(run.checkpoint == 40);
  CHECK(run.set_aside == std::vector<std::int64_t>{60});
  CHECK(run.age_s < 100);
  write_failure(folder, {.verdict = "replica 1 was lost", .starts_again = true});
  CHECK(read_run(folder).status == RunStatus::stopped);
  write_failure(folder, {.verdict = "replica 1 was lost"});
  run = read_run(folder);
  CHECK(run.status == RunStatus::failed);
  CHECK(run.failure == "replica 1 was lost");
  fs::last_write_time(folder / "config.yaml", fs::last_write_time(folder / "failure.json") + 1s);
  CHECK(read_run(folder).status == RunStatus::stopped);  // it has gone on since
  fs::remove_all(folder / "checkpoints");
  CHECK(read_run(folder).status == RunStatus::failed);
  const RunFolderLock lock(folder);
  write_text(folder / "result.json", R"({"loss": 0.5})");
  run = read_run(folder);
  CHECK(run.status == RunStatus::ended);
  CHECK(run.result["loss"] == 0.5);
  write_text(folder / "result.json", "[]");
  CHECK(message_of<DataError>([&] { (void)read_run(folder); }) ==
        (folder / "result.json").string() + " is damaged: it is no JSON object");
  fs::remove(folder / "result.json");
  REQUIRE(::mkfifo((folder / "result.json").c_str(), 0600) == 0);  // nobody waits for a writer
  CHECK_THAT(message_of<DataError>([&] { (void)read_run(folder); }), ContainsSubstring("a FIFO"));
}

}  // namespace
}  // namespace lockstep::report
