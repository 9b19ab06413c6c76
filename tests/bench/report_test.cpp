#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/bench/plotted.h"
#include "tests/catch.h"
#include "tests/support/occurrences.h"
#include "trainers/bench/reports/json.h"
#include "trainers/bench/reports/text.h"

using namespace lockstep;
using namespace lockstep::bench;
using lockstep::testing::count;
using lockstep::testing::plotted;

namespace {

Measurement measurement(const std::string& label, const std::vector<double>& samples) {
  const bool own = label == "psum" || label == "pmap";
  return {.system = {.name = label, .label = label, .version = "", .own = own},
          .samples = samples,
          .calls = 3};
}

// Two systems, two sizes: at 4 MiB one takes 1 ms and the other 4, where the memory gives 32 GB/s.
CollectivesReport example() {
  CollectivesReport report;
  report.heading.machine = {.cpu = "A <fast> CPU & more",
                            .cores = 2,
                            .instructions = "AVX2",
                            .memory_bytes = std::int64_t{8} << 30,
                            .last_cache_bytes = 1 << 25,
                            .load = 0.1,
                            .kernel = "Linux 6",
                            .date = "2026-11-21"};
  report.heading.systems = {{"psum", "psum", "LibTorch 1.13.0", true},
                            {"c10d", "c10d 2.9", "PyTorch 2.9.0", false}};
  report.heading.left_out = {{"jax", "python3 cannot run it"}};
  OperationResult& result = report.results.emplace_back();
  result.operation = Operation::all_reduce;
  result.replicas = 2;
  result.limit = {.threads = 2, .bytes_per_second = 32e9, .how = "normal stores"};
  result.sizes.push_back({1024,
                          {measurement("psum", {2e-6, 3e-6, 4e-6}),
                           measurement("c10d 2.9", {300e-6, 300e-6, 300e-6})}});
  result.sizes.push_back(
      {4'000'000,
       {measurement("psum", {1e-3, 1e-3, 1e-3}), measurement("c10d 2.9", {4e-3, 4e-3, 5e-3})}});
  result.notes = {"c10d 2.9: measured so"};
  return report;
}

}  // namespace

TEST_CASE("rates count as NCCL and the memory's limit have them") {
  const CollectivesReport report = example();
  const OperationResult& result = report.results[0];
  const SizeResult& large = result.sizes[1];
  CHECK(bus_bandwidth(result, large, large.measurements[0]) == Approx(4e9));
  CHECK(share_of_limit(result, large, large.measurements[0]) == Approx(0.5));
  CHECK(share_of_limit(result, large, large.measurements[1]) == Approx(0.125));
}

TEST_CASE("the tables show times with quartiles, bandwidth with shares, and ratios") {
  const CollectivesReport report = example();
  CHECK(result_text(report, report.results[0]) ==
        "== all_reduce, 2 replicas; limit: 32.0 GB/s read and written by 2 threads, normal stores\n"
        "\n"
        "time a call              psum         c10d 2.9\n"
        "1 KiB        3.00 us -17 +17%    300 us -0 +0%\n"
        "4000000 B      1.00 ms -0 +0%  4.00 ms -0 +13%\n"
        "\n"
        "bus GB/s (of limit)        psum  c10d 2.9\n"
        "1 KiB                     0.341    0.0034\n"
        "4000000 B            4.00 (50%)      1.00\n"
        "\n"
        "times as fast      psum\n"
        "as             c10d 2.9\n"
        "1 KiB               100\n"
        "4000000 B          4.00\n"
        "\n"
        "c10d 2.9: measured so\n"
        "\n");
  CHECK(heading_text(report.heading) ==
        "A <fast> CPU & more, AVX2, 2 cores, 8.00 GiB, Linux 6, 2026-11-21\n"
        "psum: LibTorch 1.13.0\n"
        "c10d 2.9: PyTorch 2.9.0\n"
        "jax is left out: python3 cannot run it\n");
}

TEST_CASE("a busy machine is said") {
  CollectivesReport report = example();
  report.heading.machine.load = 3.84;
  CHECK_THAT(heading_text(report.heading), ContainsSubstring("load average 3.84"));
}

TEST_CASE("the JSON holds every sample and what is known of where it was taken") {
  const auto json = nlohmann::json::parse(to_json(example()));
  CHECK(json["measurement"] == "collectives");
  CHECK(json["machine"]["cpu"] == "A <fast> CPU & more");
  CHECK(json["machine"]["cores"] == 2);
  CHECK(json["systems"][1] ==
        nlohmann::json{{"label", "c10d 2.9"}, {"version", "PyTorch 2.9.0"}, {"own", false}});
  CHECK(json["left_out"][0]["name"] == "jax");
  const auto& result = json["results"][0];
  CHECK(result["operation"] == "all_reduce");
  CHECK(result["replicas"] == 2);
  CHECK(result["limit"]["bytes_per_second"] == 32e9);
  CHECK(result["notes"][0] == "c10d 2.9: measured so");
  const auto& size = result["sizes"][1];
  CHECK(size["bytes"] == 4'000'000);
  CHECK(size["moved_bytes"] == 16e6);
  const auto& own = size["measurements"][0];
  CHECK(own["system"] == "psum");
  CHECK(own["samples"] == std::vector<double>{1e-3, 1e-3, 1e-3});
  CHECK(own["calls_per_sample"] == 3);
  CHECK(own["seconds"]["median"] == 1e-3);
  CHECK(own["bus_bytes_per_second"] == Approx(4e9));
  CHECK(own["share_of_limit"] == Approx(0.5));
  CHECK_FALSE(size["measurements"][1].contains("share_of_limit"));
  CHECK(size["measurements"][1]["seconds"]["upper_quartile"] == Approx(4.5e-3));
}

TEST_CASE("the picture of collectives has a chart a result, with a line a system over sizes") {
  CollectivesReport report = example();
  OperationResult& result = report.results[0];
  SizeResult middle = result.sizes[0];
  middle.bytes = 1 << 16;
  result.sizes.insert(result.sizes.begin() + 1, middle);
  report.results.push_back(report.results[0]);
  report.results[1].operation = Operation::all_gather;
  const std::string svg = plotted(to_json(report));
  for (const std::string text :
       {"all_reduce, 2 replicas", "all_gather, 2 replicas", "psum", "c10d 2.9"})
    CHECK(count(svg, ">" + text + "<") == 1);
  for (const std::string text : {"1 KiB", "64 KiB", "4 MB", "10 \u00b5s", "1 ms", "size", "time"})
    CHECK(count(svg, ">" + text + "<") == 2);
  CHECK(count(svg, "A &lt;fast&gt; CPU &amp; more") == 1);
  CHECK(count(svg, "nan") == 0);
  CHECK(count(svg, "inf") == 0);

  const std::string bandwidth = plotted(to_json(report), {"--columns", "bus_bytes_per_second"});
  CHECK(count(bandwidth, ">bus bandwidth<") == 2);
  CHECK(count(bandwidth, ">1 GB/s<") == 2);

  report.results.resize(1);
  report.results[0].sizes.resize(2);  // too few for lines
  const std::string bars = plotted(to_json(report));
  CHECK(count(bars, ">all_reduce, 2 replicas, 64 KiB<") == 1);
  CHECK(count(bars, ">psum<") == 2);
  CHECK(count(bars, ">300 \u00b5s<") >= 2);
}

TEST_CASE("vdot's table compares with Lockstep's") {
  VdotReport report;
  report.heading.systems = {{"pmap", "pmap", "", true}, {"serial", "serial", "", false}};
  report.bytes = 120'000'000;
  report.measurements = {measurement("pmap", {6e-3}), measurement("serial", {12e-3})};
  report.measurements[1].note = "so";
  CHECK(vdot_text(report) ==
        "vdot       time a call  GB/s read  pmap is faster, times\n"
        "pmap    6.00 ms -0 +0%       40.0                   1.00\n"
        "serial  12.0 ms -0 +0%       20.0                   2.00\n"
        "\n"
        "serial: so\n");
  CHECK(nlohmann::json::parse(to_json(report))["measurements"][1]["note"] == "so");
}
