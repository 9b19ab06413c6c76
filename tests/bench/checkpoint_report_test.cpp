#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"

using namespace lockstep;
using namespace lockstep::bench;

namespace {

constexpr double kMiB = 1 << 20;

// Medians by part.
PartsMeasurement medians(const std::string& label, bool own, const std::vector<double>& parts) {
  PartsMeasurement measurement{.system = {.name = label, .label = label, .version = "", .own = own},
                               .replicas = 2};
  for (const double part : parts) measurement.samples.push_back({part});
  return measurement;
}

// 1.2 GB that can be written in 0.8 s.
CheckpointReport checkpoint_example() {
  CheckpointReport report;
  report.parameters = 100'000'000;
  report.bytes = 1'200'000'000;
  CheckpointResult& result = report.results.emplace_back();
  result.folder = "/disk";
  result.file_system = "ext4";
  result.replicas = 2;
  result.limits = medians("limits", true, {0.8, 0.2, 0.1, 0.05});
  result.measurements = {medians("stage 2", true, {1, 0.1, 0.4, 580 * kMiB, 4 * kMiB}),
                         medians("dcp 2.9", false, {2, 2, 1, 10 * kMiB, 100 * kMiB})};
  result.measurements[0].note = "keeps a copy";
  result.reloads = {medians("stage 3", true, {0.5, 10 * kMiB, 500 * kMiB, 400 * kMiB})};
  result.reloads[0].replicas = 4;
  return report;
}

}  // namespace

TEST_CASE("a save is compared with the slower of writing and the checksum") {
  CheckpointReport report = checkpoint_example();
  CheckpointResult& result = report.results[0];
  CHECK(share_of_limit(result, result.measurements[0]) == Approx(0.8));
  CHECK(share_of_limit(result, result.measurements[1]) == Approx(0.4));
  result.limits.samples[3] = {0.9};
  CHECK(share_of_limit(result, result.measurements[0]) == Approx(0.9));
}

TEST_CASE("the tables of checkpoints show times, rates, memory and ratios") {
  const CheckpointReport report = checkpoint_example();
  CHECK(result_text(report, report.results[0]) ==
        "== 1.20 GB, 100000000 parameters with Adam's state, of 2 replicas, in /disk, ext4; limits "
        "in GB/s: write 1.50, read 6.00, copy 12.0, checksum 24.0\n"
        "\n"
        "                  save   GB/s  of limit          pause  of save           load  GB/s"
        "  save MiB  load MiB\n"
        "stage 2  1.00 s -0 +0%   1.20       80%  100 ms -0 +0%      10%  400 ms -0 +0%  3.00"
        "       580         4\n"
        "dcp 2.9  2.00 s -0 +0%  0.600       40%  2.00 s -0 +0%     100%  1.00 s -0 +0%  1.20"
        "        10       100\n"
        "\n"
        "stage 2 is faster, times  save  pause  load\n"
        "than dcp 2.9              2.00   20.0  2.50\n"
        "\n"
        "loaded by                     time  holds MiB  predicted  more MiB  of it\n"
        "4 replicas, stage 3  500 ms -0 +0%        500        400        10     2%\n"
        "\n"
        "stage 2: keeps a copy\n"
        "\n");
}

TEST_CASE("the JSON of checkpoints holds every sample") {
  const auto json = nlohmann::json::parse(to_json(checkpoint_example()));
  CHECK(json["measurement"] == "checkpoint");
  CHECK(json["parameters"] == 100'000'000);
  const auto& result = json["results"][0];
  CHECK(result["file_system"] == "ext4");
  CHECK(result["limits"]["write"]["median"] == 0.8);
  CHECK(result["measurements"][0]["share_of_limit"] == Approx(0.8));
  CHECK(result["measurements"][0]["note"] == "keeps a copy");
  CHECK(result["measurements"][1]["pause"]["samples"] == std::vector<double>{2});
  CHECK(result["reloads"][0]["replicas"] == 4);
  CHECK(result["reloads"][0]["held"]["median"] == 500 * kMiB);
}
