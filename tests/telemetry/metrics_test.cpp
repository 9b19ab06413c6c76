#include "framework/telemetry/metrics.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/telemetry/digest.h"
#include "framework/telemetry/run_folder.h"
#include "tests/catch.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/files.h"

namespace fs = std::filesystem;

namespace lockstep {

using namespace testing;
namespace {

at::Tensor one(double value) {
  return at::full({1}, value, at::kFloat);
}

// The text after `"parameters": `, up to the field that follows.
std::string parameters_text(const std::map<std::string, at::Tensor>& parameters) {
  std::string text = result_json({.parameters = parameters});
  const std::string begin = "\"parameters\": ";
  const auto from = text.find(begin);
  const auto to = text.find(",\n  \"parameters_sha256\"");
  if (from == std::string::npos || to == std::string::npos) return "";
  text = text.substr(from + begin.size(), to - from - begin.size());
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

TEST_CASE("metrics are one JSON object a line, in the order given", "[telemetry]") {
  const TemporaryFolder home;
  MetricsWriter metrics(home.path());
  metrics.write({{"step", 20}, {"loss", 85.25}, {"lr", 0.01}, {"phase", "train"}});
  metrics.write({{"z", std::int64_t{1} << 60}, {"a", -1.5e-30}});
  metrics.write({{"parts", std::map<std::string, double>{{"data", 0.25}, {"update", 1}}}});
  metrics.write({});
  CHECK(read_text(home.path() / "metrics.jsonl") ==
        "{\"step\":20,\"loss\":85.25,\"lr\":0.01,\"phase\":\"train\"}\n"
        "{\"z\":1152921504606846976,\"a\":-1.5e-30}\n"
        "{\"parts\":{\"data\":0.25,\"update\":1.0}}\n"
        "{}\n");
}

TEST_CASE("a metrics line is in the file as soon as it is written", "[telemetry]") {
  const TemporaryFolder home;
  MetricsWriter metrics(home.path());
  CHECK(read_text(home.path() / "metrics.jsonl").empty());
  metrics.write({{"step", 1}});
  CHECK(read_text(home.path() / "metrics.jsonl") == "{\"step\":1}\n");
}

TEST_CASE("a metrics file that is there is appended to", "[telemetry]") {
  const TemporaryFolder home;
  MetricsWriter(home.path()).write({{"step", 1}});
  MetricsWriter(home.path()).write({{"step", 2}});
  CHECK(read_text(home.path() / "metrics.jsonl") == "{\"step\":1}\n{\"step\":2}\n");
}

TEST_CASE("a metric that is not finite is null", "[telemetry]") {
  const TemporaryFolder home;
  const double infinity = std::numeric_limits<double>::infinity();
  MetricsWriter(home.path())
      .write({{"a", std::nan("")}, {"b", infinity}, {"c", -infinity}, {"d", 0.0}});
  CHECK(read_text(home.path() / "metrics.jsonl") ==
        "{\"a\":null,\"b\":null,\"c\":null,\"d\":0.0}\n");
}

TEST_CASE("text in metrics is escaped, and mended where it is not UTF-8", "[telemetry]") {
  const TemporaryFolder home;
  MetricsWriter(home.path()).write({{"a", "say \"hi\"\n"}, {"b", "\xff"}});
  CHECK(read_text(home.path() / "metrics.jsonl") ==
        "{\"a\":\"say \\\"hi\\\"\\n\",\"b\":\"\xef\xbf\xbd\"}\n");
}

TEST_CASE("metrics refuse a name given twice and a folder that is missing", "[telemetry]") {
  const TemporaryFolder home;
  MetricsWriter metrics(home.path());
  CHECK_THROWS_AS(metrics.write({{"loss", 1.0}, {"loss", 2.0}}), ValueError);
  CHECK_THROWS_WITH(metrics.write({{"loss", 1.0}, {"loss", 2.0}}),
                    ContainsSubstring("'loss' is given twice"));
  CHECK(read_text(home.path() / "metrics.jsonl").empty());
  CHECK_THROWS_WITH(MetricsWriter(home.path() / "missing"),
                    ContainsSubstring("missing/metrics.jsonl can't be opened"));
}

TEST_CASE("shortest_decimal is the shortest text that reads back as the float", "[telemetry]") {
  CHECK(shortest_decimal(0.16F) == 0.16);
  CHECK(shortest_decimal(2.625F) == 2.625);
  CHECK(shortest_decimal(1e-45F) == 1e-45);
  CHECK(shortest_decimal(12345678848.0F) == 12345679000.0);
  CHECK(shortest_decimal(std::numeric_limits<float>::max()) == 3.4028235e38);
  CHECK(std::signbit(shortest_decimal(-0.0F)));
  CHECK(std::isnan(shortest_decimal(std::nanf(""))));
  CHECK(shortest_decimal(-std::numeric_limits<float>::infinity()) ==
        -std::numeric_limits<double>::infinity());
}

TEST_CASE("any float32 is written with at most nine digits that read back", "[telemetry]") {
  constexpr std::uint64_t kSeed = 4;
  constexpr int kValues = 2000;
  INFO("seed " << kSeed);
  int longer = 0;
  int changed = 0;
  for (std::uint64_t i = 0; i < kValues; ++i) {
    const auto bits = static_cast<std::uint32_t>(Key(kSeed).fold(i).bits());
    const auto value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    const std::string text = parameters_text({{"x", at::full({1}, value, at::kFloat)}});
    const std::string number = text.substr(5, text.size() - 6);  // of {"x":number}
    const std::string mantissa = number.substr(0, number.find('e'));
    std::string digits;
    for (const char c : mantissa) {
      if (c >= '0' && c <= '9' && !(digits.empty() && c == '0')) digits += c;
    }
    while (!digits.empty() && digits.back() == '0') digits.pop_back();
    float read = 0;
    std::from_chars(number.data(), number.data() + number.size(), read);
    longer += digits.size() > 9 ? 1 : 0;
    changed += read == value ? 0 : 1;
  }
  CHECK(longer == 0);
  CHECK(changed == 0);
}

TEST_CASE("a run's events are lines that say how it was started, and of stalls", "[telemetry]") {
  const TemporaryFolder home;
  note_start(home.path(), {.steps = 7,
                           .replicas = 4,
                           .hosts = 2,
                           .replica_hosts = {0, 0, 1, 1},
                           .launch = "threads",
                           .libtorch = "1.13.1",
                           .lockstep = "0.1.0",
                           .command = "train --config \"a\"",
                           .engine = EngineRecord{"slurm", "18", "0", 2},
                           .changes = {"parallel.workers was 4, is 2"}});
  note_stall(home.path(), "stalled for 15 s: a\nb\xff");
  std::ifstream file(home.path() / kEventsFile);
  std::vector<std::string> lines(3);
  for (std::string& line : lines) std::getline(file, line);
  // "time" is the first.
  CHECK(lines[0].substr(lines[0].find(',')) ==
        R"(,"event":"started","steps":7,"replicas":4,"zero_stage":0,"threads_per_replica":1,)"
        R"("workers":1,"hosts":2,"replica_hosts":[0,0,1,1],"launch":"threads","backend":"",)"
        R"("blas":"","libtorch":"1.13.1","lockstep":"0.1.0","command":"train --config \"a\"",)"
        R"("engine":{"name":"slurm","job":"18","step":"0","restarts":2},)"
        R"("changes":["parallel.workers was 4, is 2"]})");
  CHECK(lines[0].starts_with("{\"time\":1"));
  CHECK(lines[1].substr(lines[1].find(',')) ==
        ",\"event\":\"stalled\",\"text\":\"stalled for 15 s: a\\nb\xef\xbf\xbd\"}");
  CHECK(file.eof());

  // A full disk has left the beginning of a line.
  write_text(home.path() / kEventsFile, lines[1] + "\n{\"time\":1,\"ev");
  note_stall(home.path(), "again");
  CHECK_THAT(read_text(home.path() / kEventsFile),
             Catch::Matchers::StartsWith(lines[1] + "\n{\"time\":1") &&
                 Catch::Matchers::EndsWith(",\"event\":\"stalled\",\"text\":\"again\"}\n"));
  CHECK_THROWS_AS(note_stall(home.path() / "none", "x"), Error);
}

TEST_CASE("result.json is as the design shows it", "[telemetry]") {
  const TemporaryFolder home;
  const std::map<std::string, at::Tensor> parameters{
      {"w", one(2.625).view({1, 1}).requires_grad_()}, {"b", one(0.16)}};
  write_result(home.path(), {.steps = 1,
                             .replicas = 4,
                             .loss = 85.25,
                             .eval = {{"accuracy", 0.88}},
                             .parameters = parameters,
                             .parameters_sha256 = parameters_sha256(parameters),
                             .threads_per_replica = 2,
                             .workers = 3,
                             .launch = "processes",
                             .backend = "gloo",
                             .blas = "OpenBLAS",
                             .libtorch = "1.13.1",
                             .cpu = "Xeon",
                             .cores = 2,
                             .command = "train",
                             .engine = EngineRecord{.name = "mpi"}});
  CHECK(read_text(home.path() / "result.json") ==
        "{\n"
        "  \"steps\": 1,\n"
        "  \"replicas\": 4,\n"
        "  \"zero_stage\": 0,\n"
        "  \"loss\": 85.25,\n"
        "  \"eval\": {\n    \"accuracy\": 0.88\n  },\n"
        "  \"test\": {\n    \"accuracy\": 0.88\n  },\n"
        "  \"parameters\": {\n    \"b\": 0.16,\n    \"w\": 2.625\n  },\n"
        "  \"parameters_sha256\": "
        "\"82db04f5936227278f24c73541e0bc099d4353489dc4f44700fab22197277106\",\n"
        "  \"threads_per_replica\": 2,\n"
        "  \"workers\": 3,\n"
        "  \"launch\": \"processes\",\n"
        "  \"backend\": \"gloo\",\n"
        "  \"blas\": \"OpenBLAS\",\n"
        "  \"libtorch\": \"1.13.1\",\n"
        "  \"cpu\": \"Xeon\",\n"
        "  \"cores\": 2,\n"
        "  \"command\": \"train\",\n"
        "  \"engine\": {\n    \"name\": \"mpi\"\n  }\n"
        "}\n");
  CHECK(entries(home.path()) == 1);
}

TEST_CASE("parameters are numbers and nested lists of any dtype", "[telemetry]") {
  CHECK(parameters_text({{"m", at::tensor({0.1F, 0.2F, 0.3F, 0.4F}).view({2, 2}).t()}}) ==
        "{\"m\":[[0.1,0.3],[0.2,0.4]]}");
  CHECK(parameters_text({{"s", at::full({}, 0.1, at::kDouble)}}) == "{\"s\":0.1}");
  CHECK(parameters_text({{"d", at::full({1}, 0.16F, at::kDouble)}}) ==
        "{\"d\":0.1599999964237213}");
  CHECK(parameters_text({{"h", at::full({1}, 0.5, at::kHalf)}}) == "{\"h\":0.5}");
  CHECK(parameters_text({{"i", at::tensor({-3, 4}, at::kLong)}}) == "{\"i\":[-3,4]}");
  CHECK(parameters_text({{"f", at::tensor({1, 0}).to(at::kBool)}}) == "{\"f\":[true,false]}");
  CHECK(parameters_text({{"n", one(std::nan(""))}}) == "{\"n\":null}");
  CHECK(parameters_text({{"e", at::zeros({0})}}) == "{\"e\":[]}");
}

TEST_CASE("without parameters there is their digest alone", "[telemetry]") {
  const std::string text = result_json({.parameters_sha256 = "12ab"});
  CHECK_THAT(text, !ContainsSubstring("\"parameters\":"));
  CHECK_THAT(text, ContainsSubstring("\"parameters_sha256\": \"12ab\""));
}

TEST_CASE("a model's buffers have a digest of their own, where it has any", "[telemetry]") {
  CHECK_THAT(result_json({.parameters_sha256 = "12ab", .buffers_sha256 = "34cd"}),
             ContainsSubstring("\"parameters_sha256\": \"12ab\",\n  \"buffers_sha256\": \"34cd\""));
  CHECK_THAT(result_json({.parameters_sha256 = "12ab"}), !ContainsSubstring("buffers_sha256"));
}

TEST_CASE("steps that were skipped stand after the steps, if there are any", "[telemetry]") {
  CHECK_THAT(
      result_json({.steps = 7, .skipped_steps = 3}),
      ContainsSubstring("{\n  \"steps\": 7,\n  \"skipped_steps\": 3,\n  \"replicas\": 1,\n"));
  CHECK_THAT(result_json({.steps = 7}), !ContainsSubstring("skipped"));
}

TEST_CASE("a result without evaluation or a finite loss says so", "[telemetry]") {
  const std::string text = result_json({.loss = std::nan("")});
  CHECK_THAT(text, ContainsSubstring("\"loss\": null,\n  \"eval\": {},\n  \"test\": {},\n"));
}

TEST_CASE("metrics are cut behind a step, and torn lines go") {
  const TemporaryFolder folder;
  const std::string kept = "{\"step\":1,\"loss\":2}\n{\"step\":2}\n{\"step\":2,\"eval\":1}\n";
  for (const std::string later :
       {"", "{\"step\":3}\n{\"step\":4}\n", "{\"step\":2,\"lo", "{\"step\":2}", "x\n{\"step\":1}\n",
        "[1]\n", "{\"step\":1.5}\n"}) {
    INFO(later);
    (void)folder.write("metrics.jsonl", kept + later);
    cut_metrics(folder.path(), 2);
    std::ifstream in(folder.path() / "metrics.jsonl");
    CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == kept);
  }
  const TemporaryFolder empty;
  cut_metrics(empty.path(), 2);
  CHECK(std::filesystem::is_empty(empty.path()));
}

TEST_CASE("metrics of more than a part that is read at once are cut at the right line") {
  const TemporaryFolder home;
  std::string text;
  std::string kept;
  for (int step = 1; step <= 3000; ++step) {
    const std::string note(step == 2000 ? 3'000'000 : step % 1000, 'x');
    text += "{\"step\":" + std::to_string(step) + ",\"note\":\"" + note + "\"}\n";
    if (step == 2500) kept = text;
  }
  write_text(home.path() / "metrics.jsonl", text);
  cut_metrics(home.path(), 2500);
  CHECK(read_text(home.path() / "metrics.jsonl") == kept);
}

TEST_CASE("a FIFO in place of the metrics is an error at once") {
  const TemporaryFolder home;
  const std::string path = home.path("metrics.jsonl");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const std::string message = path + " can't be opened: it is a FIFO, not a file";
  CHECK_THROWS_WITH(cut_metrics(home.path(), 1), message);
  CHECK_THROWS_WITH(MetricsWriter(home.path()), message);
}

TEST_CASE("a figure that is null in a result is told", "[telemetry]") {
  const TemporaryFolder home;
  const CapturedStderr log;
  write_result(home.path(), {.loss = 0.5, .eval = {{"accuracy", 0.5}, {"loss", std::nan("")}}});
  CHECK(log.text() == "lockstep: warning: eval.loss is nan: result.json has null there\n");
}

TEST_CASE("a result that can't be written is an error that names the file", "[telemetry]") {
  const TemporaryFolder home;
  CHECK_THROWS_WITH(write_result(home.path() / "missing", {}),
                    ContainsSubstring((home.path() / "missing").string()));
}

}  // namespace
}  // namespace lockstep
