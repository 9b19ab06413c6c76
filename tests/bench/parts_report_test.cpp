#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"

using namespace lockstep;
using namespace lockstep::bench;

namespace {

Measurement sampled(const std::string& label, const std::vector<double>& samples) {
  return {.system = {.name = label, .label = label, .version = ""}, .samples = samples};
}

// 10 MiB in 40 ms, which memory gives in 2.
PartsReport parts_example() {
  PartsReport report;
  report.results.push_back(
      {.name = "replicated",
       .what = "a check",
       .unit = "MiB",
       .amount = 10,
       .measurements = {sampled("check", {0.03, 0.04, 0.05}), sampled("memory", {0.002})}});
  report.results.push_back(
      {.name = "table", .what = "a start", .measurements = {sampled("train", {1.5})}});
  return report;
}

}  // namespace

TEST_CASE("the table of a part shows times for each unit, and how many times the part's") {
  const PartsReport report = parts_example();
  CHECK(result_text(report.results[0]) ==
        "== replicated: a check\n"
        "\n"
        "              time a MiB  x check\n"
        "check   4.00 ms -12 +13%     1.00\n"
        "memory     200 us -0 +0%   0.0500\n"
        "\n");
  CHECK(result_text(report.results[1]) ==
        "== table: a start\n"
        "\n"
        "                time  x train\n"
        "train  1.50 s -0 +0%     1.00\n"
        "\n");
}

TEST_CASE("the JSON of parts holds every sample, and what it is for") {
  const auto json = nlohmann::json::parse(to_json(parts_example()));
  CHECK(json["measurement"] == "parts");
  const auto& result = json["results"][0];
  CHECK(result["name"] == "replicated");
  CHECK(result["unit"] == "MiB");
  CHECK(result["amount"] == 10);
  CHECK(result["measurements"][0]["samples"] == std::vector<double>{0.03, 0.04, 0.05});
  CHECK(result["measurements"][1]["seconds"]["median"] == 0.002);
}
