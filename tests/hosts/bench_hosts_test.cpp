#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "trainers/bench/hosts/child_program.h"

using namespace lockstep::testing;

namespace {

nlohmann::json measured(std::vector<std::string> flags, const std::string& part_of_output) {
  const TemporaryFolder temporary;
  const TemporaryFolder work;
  flags.insert(flags.begin(),
               {"/usr/bin/env", "TMPDIR=" + temporary.path().string(), BENCH_BINARY});
  flags.insert(flags.end(), {"--hosts", "2", "--repetitions", "2", "--json", "out.json"});
  flags.insert(flags.end(), {"--python", "/nowhere/python"});
  const Ended end = run_program(flags, work.path());
  require_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring(part_of_output));
  CHECK(entries(temporary.path()) == 0);
  return nlohmann::json::parse(read_text(work.path() / "out.json"));
}

}  // namespace

TEST_CASE("bench collectives measures between hosts, beside plain TCP") {
  constexpr std::int64_t kBytes = std::int64_t{1} << 20;
  const auto json = measured({"collectives", "--sizes", "64,1MiB", "--rate-mbit", "400"},
                             "== all_reduce, 4 replicas on 2 hosts, 400 Mbit/s\n");
  REQUIRE(json["results"].size() == 2 * 3);
  for (const auto& result : json["results"]) {
    CHECK(result["network"]["hosts"] == 2);
    CHECK(result["network"]["mbit_per_second"] == 400);
    REQUIRE(result["sizes"].size() == 2);
    const auto& measurements = result["sizes"][1]["measurements"];
    REQUIRE(measurements.size() == 3);
    CHECK(measurements[2]["system"] == "tcp");
    // However many replicas a host has, it sends the same bytes once, and its cable limits them.
    // What TCP sends again counts, too.
    const double bytes = kBytes * (result["operation"] == "all_reduce" ? 1 : 0.5);
    for (const auto& measurement : measurements) {
      INFO(measurement);
      CHECK(measurement["sent_bytes"] > bytes);
      CHECK(measurement["sent_bytes"] < 1.5 * bytes);
      CHECK(measurement["bus_bytes_per_second"] < 1.1 * 50e6);
    }
  }
}

TEST_CASE("bench training says what of the communication between hosts is hidden") {
  const auto json = measured(
      {"training", "--models", "mlp", "--batch", "4", "--stages", "0,2", "--delay-ms", "0.5"},
      "4 replicas of 4 samples on 2 hosts, 1000 Mbit/s, 0.5 ms away; floor ");
  REQUIRE(json["results"].size() == 1);
  const auto& result = json["results"][0];
  const double bytes = 4 * result["parameters"].get<double>();
  CHECK(result["bound_seconds"] == result["measurements"][1]["bound_seconds"]);
  CHECK(result["bound_seconds"] > bytes / 125e6);
  REQUIRE(result["measurements"].size() == 3);
  CHECK(result["measurements"][0]["system"] == "alone");
  CHECK(result["measurements"][0]["gradients_ready"].size() == 6);
  for (std::size_t i = 1; i < 3; ++i) {
    const auto& stage = result["measurements"][i];
    INFO(stage);
    CHECK(stage["sent_bytes"] > bytes);
    CHECK(stage["sent_bytes"] < 1.5 * bytes);
    CHECK(stage["seconds"]["median"] > 0.99 * stage["bound_seconds"].get<double>());
    CHECK(stage["hidden_seconds"] >= 0);
    CHECK(stage["hidden_seconds"] <= stage["cable_seconds"]);
  }
}

TEST_CASE("bench scaling gives each host the same share of the cores") {
  const TemporaryFolder work;
  require_status(run_program({BENCH_BINARY, "scaling", "--batch", "2", "--repetitions", "1",
                              "--python", "/nowhere/python", "--json", "out.json"},
                             work.path()),
                 0);
  const auto json = nlohmann::json::parse(read_text(work.path() / "out.json"));
  CHECK(json["cores_a_host"] <= 1);
  const auto& rows = json["results"][0]["measurements"];
  REQUIRE(rows.size() == 4);
  CHECK(rows[0]["efficiency"]["median"] == 1);
  CHECK(rows[3]["hosts"] == 8);
  CHECK(rows[3]["efficiency"]["median"] < 1);
}
