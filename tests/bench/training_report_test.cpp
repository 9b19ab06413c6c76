#include <cstddef>
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

constexpr double kMs = 1e-3;

// A step of that many milliseconds, whose parts take these.
Measurement step(const std::string& name, const std::string& label, double whole,
                 const StepParts& parts) {
  const bool own = name == "lockstep";
  Measurement measurement{.system = {.name = name, .label = label, .version = "", .own = own},
                          .samples = {whole * kMs},
                          .calls = 5,
                          .note = "",
                          .parts = parts,
                          .memory = {.peak_bytes = 100 << 20, .host_bytes = 150 << 20}};
  for (double& part : measurement.parts) part *= kMs;
  measurement.turns = {measurement.parts};
  return measurement;
}

// Two models' worth of numbers that are easy to follow: a million parameters at 28 GB/s are 1 ms.
TrainingReport training_example() {
  TrainingReport report;
  report.heading.machine.cpu = "A CPU";
  report.heading.machine.cores = 2;
  report.heading.machine.date = "2026-11-21";
  report.heading.systems = {{"lockstep", "alone", "LibTorch", true},
                            {"lockstep", "stage 0", "LibTorch", true},
                            {"plain", "plain 1.13", "PyTorch 1.13.0", false},
                            {"ddp", "ddp 1.13", "PyTorch 1.13.0", false}};
  report.heading.left_out = {{"zero", "there is none"}};
  TrainingResult result{.model = "mlp",
                        .parameters = 1'000'000,
                        .replicas = 1,
                        .batch = 64,
                        .limit = {.threads = 1, .bytes_per_second = 28e9, .how = "memcpy"},
                        .measurements = {}};
  result.measurements = {step("lockstep", "alone", 9, {0, 3, 5, 0, 1}),
                         step("lockstep", "stage 0", 10, {0, 3, 5, 0, 2}),
                         step("plain", "plain 1.13", 12, {0, 3, 6, 0, 3})};
  report.results.push_back(result);
  result.replicas = 2;
  result.measurements = {step("lockstep", "alone", 9, {0, 3, 5, 0, 1}),
                         step("lockstep", "stage 0", 12.5, {0.25, 3.5, 6, 0.75, 2}),
                         step("plain", "plain 1.13", 13, {0, 3, 6.5, 0, 3.5}),
                         step("ddp", "ddp 1.13", 25, {0.5, 4, 16.5, 0, 4})};
  result.measurements.push_back(step("single", "stage 0, 1 replica", 10, {0, 3, 5, 0, 2}));
  result.measurements.push_back(step("single", "plain 1.13, 1 replica", 12, {0, 3, 6, 0, 3}));
  result.measurements[3].note = "its fastest Adam here is fused";
  report.results.push_back(result);
  result.replicas = 4;
  result.measurements.resize(4);
  report.results.push_back(result);
  report.launched_replicas = 4;
  report.launches = {result.measurements[1], result.measurements[3]};
  report.launches[0].system.label = "train";
  report.launches[1].system.label = "torchrun 1.13";
  return report;
}

void check_parts(const StepParts& found, const StepParts& expected) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO(kStepPartNames[i]);
    CHECK(found[i] == Approx(expected[i] * kMs).margin(1e-12));
  }
}

}  // namespace

TEST_CASE("the floor is what runs alone and Adam's bytes at the memory's speed") {
  TrainingReport report = training_example();
  const auto floor = floor_of(report.results[1]);
  REQUIRE(floor);
  CHECK(floor->compute == Approx(8 * kMs));
  CHECK(floor->update == Approx(1 * kMs));
  CHECK(floor->seconds() == Approx(9 * kMs));
  report.results[1].measurements.erase(report.results[1].measurements.begin());
  CHECK_FALSE(floor_of(report.results[1]));
}

TEST_CASE("what forward, backward and update take longer than alone is communication") {
  TrainingReport report = training_example();
  const TrainingResult& result = report.results[1];
  check_parts(exposed_parts(result, result.measurements[1]), {0.25, 3, 5, 3.25, 1});
  check_parts(exposed_parts(result, result.measurements[3]), {0.5, 3, 6.5, 11.5, 3.5});
  for (const std::string sharded : {"zero", "fsdp"}) {
    const Measurement peer = step(sharded, sharded + " 1.13", 20, {0, 3, 7.5, 0, 9});
    check_parts(exposed_parts(result, peer), {0, 3, 6.5, 8.25, 1.75});
  }
  // Without the plain loop of its version a peer's parts are as measured.
  report.results[1].measurements.erase(report.results[1].measurements.begin() + 2);
  check_parts(exposed_parts(result, result.measurements[2]), {0.5, 4, 16.5, 0, 4});
}

TEST_CASE("exposed communication and compute are compared with those of the peers") {
  TrainingReport report = training_example();
  TrainingResult& result = report.results[1];
  std::vector<Measurement>& all = result.measurements;
  CHECK(exposed_ratio(result, all[1], all[3]).value() == Approx(3.25 / 11.5));
  CHECK_FALSE(exposed_ratio(result, all[1], all[2]));  // the plain loop has none
  CHECK(compute_ratio(result, all[2]).value() == Approx(8 / 9.5));
  CHECK_FALSE(compute_ratio(result, all[3]));
  all[1].turns = all[0].turns;
  all[1].turns[0][static_cast<std::size_t>(StepPart::backward)] -= kMs;  // noise
  CHECK(exposed_ratio(result, all[1], all[3]).value() == 0);
  CHECK_FALSE(exposed_ratio(result, all[3], all[1]));
  all.erase(all.begin());  // "alone"
  CHECK_FALSE(exposed_ratio(result, all[0], all[2]));
  CHECK_FALSE(compute_ratio(result, all[1]));
}

TEST_CASE("times are compared turn by turn") {
  TrainingReport report = training_example();
  TrainingResult& result = report.results[1];
  const auto set_forward = [](Measurement& measurement, const std::vector<double>& turns) {
    measurement.turns.assign(turns.size(), measurement.turns[0]);
    for (std::size_t i = 0; i < turns.size(); ++i)
      measurement.turns[i][static_cast<std::size_t>(StepPart::forward)] = turns[i] * kMs;
  };
  // In its turns forward takes 1, 9 and 1 ms longer than alone.
  set_forward(result.measurements[0], {3, 1, 2});
  set_forward(result.measurements[1], {4, 10, 3});
  check_parts(exposed_parts(result, result.measurements[1]), {0.25, 3, 5, 3.75, 1});

  Measurement one{.system = {}, .samples = {1, 20, 3}};
  Measurement other{.system = {},
                    .samples = {2, 10, 6}};  // the machine was busy in the second turn
  CHECK(times_of(one, other) == 0.5);
  CHECK(times_of(other, one) == 2);
}

TEST_CASE("training on augmented images is compared with that on images as they are") {
  TrainingReport report = training_example();
  TrainingResult& result = report.results[1];
  result.measurements.push_back(
      step("lockstep", "stage 0 augmented", 12.75, {0.5, 3.5, 6, 0.75, 2}));
  result.measurements.push_back(step("lockstep", "stage 3 augmented threads", 9, {}));
  CHECK(unaugmented(result, result.measurements[6]) == &result.measurements[1]);
  CHECK(unaugmented(result, result.measurements[7]) == nullptr);
  CHECK(unaugmented(result, result.measurements[1]) == nullptr);
  CHECK(count(result_text(result), "\nstage 0 augmented: 1.02 times as long as stage 0\n\n") == 1);
  result.measurements.push_back(step("lockstep", "stage 3 threads", 18, {}));
  CHECK(unaugmented(result, result.measurements[7]) == &result.measurements[8]);
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json["results"][1]["measurements"][6]["times_of_unaugmented"] == Approx(1.02));
  CHECK_FALSE(json["results"][1]["measurements"][1].contains("times_of_unaugmented"));
}

TEST_CASE("on several hosts the bound is what gradients and the cable allow") {
  TrainingReport report = training_example();
  TrainingResult& result = report.results[1];
  CHECK_FALSE(network_bound(result));
  CHECK_FALSE(network_use(result, result.measurements[1]));
  result.network = {.hosts = 2, .rate_mbit = 800, .delay_ms = 1};  // 100 KB take a ms
  result.gradient_bytes = {300'000, 1'000'000, 200'000};
  result.measurements[0].gradients_ready = {8 * kMs, 7 * kMs, 4 * kMs};
  // From the first gradient on the cable has 1.5 MB, from the second 1.3 MB.
  CHECK(network_bound(result).value() == Approx((7 + 13 + 1) * kMs));
  result.gradient_bytes = {300'000, 10'000, 2'000'000};
  CHECK(network_bound(result).value() == Approx((4 + 23.1 + 1) * kMs));
  result.gradient_bytes = {0, 0, 0};
  CHECK(network_bound(result).value() == Approx(9 * kMs));
  // Of 5 ms on the cable a step of 12.5 ms waits for 3.25.
  result.measurements[1].sent_bytes = 500'000;
  const auto use = network_use(result, result.measurements[1]);
  CHECK(use.value().cable == Approx(5 * kMs));
  CHECK(use.value().hidden == Approx(1.75 * kMs));
  CHECK(result_text(result).find("1000000 parameters, 2 replicas of 64 samples on 2 hosts, "
                                 "800 Mbit/s, 1 ms away; floor ") != std::string::npos);
}

TEST_CASE("efficiency compares with one replica of the same turns") {
  const TrainingReport report = training_example();
  const TrainingResult& two = report.results[1];
  CHECK(efficiency(two, two.measurements[1]).value() == Approx(0.8));
  CHECK(efficiency(two, two.measurements[2]).value() == Approx(12.0 / 13));
  CHECK(efficiency(two, two.measurements[3]).value() == Approx(12.0 / 25));
  for (const std::size_t i : {0U, 2U})
    CHECK_FALSE(efficiency(report.results[i], report.results[i].measurements[1]));
}

TEST_CASE("the tables show parts, shares and ratios of training and of launches") {
  const TrainingReport report = training_example();
  CHECK(result_text(report.results[1]) ==
        "== mlp, 1000000 parameters, 2 replicas of 64 samples; floor 9.00 ms: 8.00 ms forward and "
        "backward, 1.00 ms update at 28.0 GB/s\n"
        "\n"
        "                    a step  steps/s    data  forward  backward  communication  update  of "
        "floor  efficiency  peak MiB  host MiB\n"
        "alone       9.00 ms -0 +0%      111  0.0000     3.00      5.00         0.0000    1.00    "
        "                         100       150\n"
        "stage 0     12.5 ms -0 +0%     80.0   0.250     3.00      5.00           3.25    1.00    "
        "   72%         80%       100       150\n"
        "plain 1.13  13.0 ms -0 +0%     76.9  0.0000     3.00      6.50         0.0000    3.50    "
        "   69%         92%       100       150\n"
        "ddp 1.13    25.0 ms -0 +0%     40.0   0.500     3.00      6.50           11.5    3.50    "
        "   36%         48%       100       150\n"
        "\n"
        "times as fast as  stage 0\n"
        "plain 1.13           1.04\n"
        "ddp 1.13             2.00\n"
        "\n"
        "exposed, of that of  stage 0\n"
        "plain 1.13\n"
        "ddp 1.13                 28%\n"
        "\n"
        "forward and backward alone: 1.19 times as fast as plain 1.13\n"
        "\n"
        "ddp 1.13: its fastest Adam here is fused\n"
        "\n");
  CHECK(launches_text(report) ==
        "== launch to first step, pmean_linear, 4 processes\n"
        "\n"
        "                         time\n"
        "train          12.5 ms -0 +0%\n"
        "torchrun 1.13  25.0 ms -0 +0%\n"
        "\n"
        "times as fast as  train\n"
        "torchrun 1.13      2.00\n"
        "\n");
}

TEST_CASE("the JSON of training holds samples, parts, floor and memory") {
  const auto json = nlohmann::json::parse(to_json(training_example()));
  CHECK(json["measurement"] == "training");
  CHECK(json["optimizer"] == "adam");
  CHECK(json["left_out"][0]["name"] == "zero");
  const auto& result = json["results"][1];
  CHECK(result["model"] == "mlp");
  CHECK(result["parameters"] == 1'000'000);
  CHECK(result["replicas"] == 2);
  CHECK(result["batch"] == 64);
  CHECK(result["limit"]["bytes_per_second"] == 28e9);
  CHECK(result["floor"]["seconds"] == Approx(9 * kMs));
  const auto& alone = result["measurements"][0];
  CHECK_FALSE(alone.contains("share_of_floor"));
  const auto& own = result["measurements"][1];
  CHECK(own["system"] == "stage 0");
  CHECK(own["samples"] == std::vector<double>{12.5 * kMs});
  CHECK(own["steps_per_second"] == Approx(80));
  CHECK(own["measured_parts"]["backward"] == Approx(6 * kMs));
  CHECK(own["exposed_parts"]["communication"] == Approx(3.25 * kMs));
  CHECK(own["share_of_floor"] == Approx(0.72));
  CHECK(own["efficiency"] == Approx(0.8));
  CHECK(own["of_peers"]["ddp 1.13"]["step"] == Approx(0.5));
  CHECK(own["of_peers"]["ddp 1.13"]["exposed"] == Approx(3.25 / 11.5));
  CHECK_FALSE(own["of_peers"]["plain 1.13"].contains("exposed"));
  CHECK_FALSE(alone.contains("of_peers"));
  CHECK(result["measurements"][2]["compute_of_lockstep"] == Approx(9.5 / 8));
  CHECK(own["peak_bytes"] == 100 << 20);
  CHECK(own["host_bytes"] == 150 << 20);
  CHECK(result["measurements"][3]["note"] == "its fastest Adam here is fused");
  CHECK(result["measurements"][4]["system"] == "stage 0, 1 replica");
  CHECK_FALSE(result["measurements"][4].contains("share_of_floor"));
  CHECK_FALSE(result["measurements"][4].contains("efficiency"));
  CHECK(json["launches"]["replicas"] == 4);
  CHECK(json["launches"]["measurements"][1]["system"] == "torchrun 1.13");
}

TEST_CASE("the picture of training has a chart a model and a bar a system, without references") {
  TrainingReport report = training_example();
  report.results.erase(report.results.begin());
  const std::string svg = plotted(to_json(report));
  for (const std::string text :
       {"mlp, 1000000 parameters, 2 replicas, batch 64",
        "mlp, 1000000 parameters, 4 replicas, batch 64", "launches", "train"})
    CHECK(count(svg, ">" + text + "<") == 1);
  for (const std::string text : {"stage 0", "plain 1.13", "ddp 1.13", "13 ms"})
    CHECK(count(svg, ">" + text + "<") == 2);
  CHECK(count(svg, ">12.5 ms<") == 2 + 1);
  CHECK(count(svg, ">alone<") == 0);
  CHECK(count(svg, "1 replica<") == 0);

  const std::string parts = plotted(to_json(report), {"--columns", "exposed_parts"});
  for (const std::string part : kStepPartNames) CHECK(count(parts, ">" + part + "<") == 1);
  CHECK(count(parts, ">12.5 ms<") == 2);
  CHECK(count(parts, ">launches<") == 0);

  for (const std::int64_t replicas : {8, 16}) {
    report.results.push_back(report.results[0]);
    report.results.back().replicas = replicas;
  }
  const std::string lines = plotted(to_json(report));
  CHECK(count(lines, ">mlp, 1000000 parameters, batch 64<") == 1);
  CHECK(count(lines, ">replicas<") == 1);
  for (const std::string replicas : {"2", "4", "8", "16"})
    CHECK(count(lines, ">" + replicas + "<") == 1);
}
