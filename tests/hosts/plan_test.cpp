// What `train plan` predicts beside what jobs on hosts take: by `tests/hosts.sh "[plan]"` alone,
// since it takes minutes. Hosts share this machine's cores, so the model waits where others
// compute.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/hosts/job_on_hosts.h"
#include "tests/hosts/test_network.h"
#include "tests/support/ended.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr const char* kWaiting = R"(
model: {name: waits, layers: 4, values: 250000, forward_ms: 20, backward_ms: 40}
data: {name: synthetic, samples: 100000, features: 8, batch_size: 4}
optimizer: {name: sgd, lr: 0.001}
parallel: {threads_per_replica: 1}
trainer: {steps: 60, seed: 0, log_every: 1, eval_every: 0}
checkpoint: none
telemetry: {tensorboard: false, report: false}
)";

// Of the steps behind the first ten.
double median_step(const std::filesystem::path& metrics) {
  std::vector<double> ends, steps;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("loss")) ends.push_back(json.at("elapsed_s"));
  }
  for (std::size_t i = 10; i < ends.size(); ++i) steps.push_back(ends[i] - ends[i - 1]);
  REQUIRE(steps.size() >= 50);
  const auto middle = steps.begin() + std::ssize(steps) / 2;
  std::ranges::nth_element(steps, middle);
  return *middle;
}

// As the run has measured it: "links between hosts: 0.21 ms, 117 MB/s; an all-reduce …".
std::string link_in(const std::string& output) {
  const std::string before = "links between hosts: ";
  const std::size_t begin = output.find(before);
  REQUIRE(begin != std::string::npos);
  const std::size_t first = begin + before.size();
  return output.substr(first, output.find(';', first) - first);
}

double predicted_step(const std::string& config, std::size_t hosts, const std::string& stage,
                      const std::string& link) {
  const Ended end =
      run_program({OWN_TRAIN_BINARY, "plan", "--config", config, "--hosts", str(hosts),
                   "--host-replicas", "1", "--stages", stage, "--link", link, "--format", "json"});
  INFO(end.err);
  REQUIRE(end.status == 0);
  return nlohmann::json::parse(end.out).at("jobs").at(0).at("step_s");
}

}  // namespace

TEST_CASE("steps on hosts take as long as train plan predicts", "[.plan]") {
  constexpr double kTolerance = 0.15;
  const TemporaryFolder folder;
  const std::string config = folder.write("config.yaml", kWaiting);
  std::printf("hosts  Mbit/s  delay  stage  link                predicted  measured  difference\n");
  for (const std::size_t hosts : {2, 3, 4}) {
    for (const int rate : {1000, 100}) {
      const TestNetwork network({.hosts = hosts, .rate_mbit = rate, .delay_ms = 1});
      for (const std::string stage : {"0", "1", "2", "3"}) {
        JobOnHosts job(network, kWaiting, hosts, set("parallel.zero_stage=" + stage));
        for (std::size_t host = 0; host < hosts; ++host) job.run_as(host, OWN_TRAIN_BINARY);
        job.start();
        const std::vector<Ended> ended = job.wait(std::chrono::seconds(300));
        INFO(job.all_output());
        for (const Ended& end : ended) REQUIRE(end.status == 0);
        const std::string link = link_in(ended[0].err);
        const double measured = median_step(job.output(0, "metrics.jsonl"));
        const double predicted = predicted_step(config, hosts, stage, link);
        std::printf("%5zu  %6d  1 ms   %5s  %-18s  %6.1f ms  %6.1f ms  %+9.1f%%\n", hosts, rate,
                    stage.c_str(), link.c_str(), predicted * 1e3, measured * 1e3,
                    100 * (predicted / measured - 1));
        std::fflush(stdout);
        CHECK(std::abs(predicted - measured) <= kTolerance * measured);
      }
    }
  }
}
