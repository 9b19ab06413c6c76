#include "trainers/plan/plan.h"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/occurrences.h"
#include "tests/support/programs.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config/config_options.h"
#include "trainers/plan/plan_text.h"

namespace lockstep::plan {
namespace {

using testing::message_of;

// A perceptron of four parameters, of which the first layer has nearly all values.
struct Job {
  Config config;
  DataSets data;

  explicit Job(const std::vector<std::string>& sets = {})
      : config(
            testing::parse("model: {name: mlp, hidden: [1024]}\n"
                           "data: {name: synthetic, samples: 4000, features: 256, batch_size: 8}\n"
                           "optimizer: {name: adam}\ntrainer: {epochs: 1}\n",
                           sets)),
        data(load_data(config.data, data_context(config))) {}

  [[nodiscard]] Plan plan(const PlanRequest& request) const {
    return plan_of(config, data, profile, request);
  }
  [[nodiscard]] std::vector<PlannedJob> jobs(const PlanRequest& request) const {
    return plan(request).jobs;
  }

  // The last layer's gradients come first.
  StepProfile profile{.samples = 8,
                      .steps = 5,
                      .data = 0.001,
                      .forward = 0.010,
                      .backward = 0.020,
                      .rest = 0.001,
                      .update = 0.004,
                      .first = 1,
                      .ready = {0.020, 0.019, 0.005, 0.004},
                      .activations = 1000};
};

constexpr comm::LinkSpeed kFast{.latency = 1e-5, .bytes_per_second = 1e10};
constexpr comm::LinkSpeed kSlow{.latency = 1e-3, .bytes_per_second = 1e6};

}  // namespace

TEST_CASE("on one host a job takes what was measured") {
  const PlannedJob alone = Job().jobs({.hosts = {1}, .stages = {0}})[0];
  CHECK(alone.step_s == Approx(0.001 + 0.010 + 0.020 + 0.001 + 0.004));
  CHECK(alone.exposed_s == 0);
  CHECK(alone.efficiency == 1);
  CHECK(alone.connections == 0);
  CHECK(alone.steps == 500);
  CHECK(alone.hours == Approx((1 + 500 * alone.step_s) / 3600));
  CHECK(alone.breaks.empty());
  // Replicas of a host share the update. Those for which it has no cores take turns.
  Job job;
  const PlanRequest of_four{.hosts = {1}, .host_replicas = 4, .stages = {3}};
  job.profile.replicas = 4;
  const PlannedJob four = job.jobs(of_four)[0];
  CHECK(four.step_s == Approx(alone.step_s - 0.003));
  CHECK(four.steps == 125);
  job.profile.replicas = 2;
  CHECK(job.jobs(of_four)[0].step_s == Approx(2 * four.step_s));
}

TEST_CASE("more hosts take fewer steps and wait for their links, the slower the longer") {
  const Job job;
  for (const int stage : {0, 1, 2, 3}) {
    INFO("stage " << stage);
    const auto fast = job.jobs({.hosts = {1, 2, 16}, .stages = {stage}, .link = kFast});
    const auto slow = job.jobs({.hosts = {1, 2, 16}, .stages = {stage}, .link = kSlow});
    CHECK(fast[1].steps == 250);
    CHECK(fast[2].samples == 128);
    for (const std::size_t i : {1U, 2U}) {
      CHECK(fast[i].exposed_s < 0.003);
      CHECK(fast[i].start.messages == (fast[i].hosts - 1) * (2 + fast[i].connections));
      CHECK(slow[i].exposed_s > fast[i].exposed_s);
      CHECK(slow[i].efficiency < 0.1);
      CHECK(slow[i].connections >= 1);
      CHECK(slow[i].connections < slow[i].hosts);
      CHECK_THAT(slow[i].breaks,
                 ContainsSubstring("link: replicas wait 9") && ContainsSubstring("% of a step; "));
      CHECK(fast[i].breaks.empty());
    }
    // A gradient's way there and back, whatever the stage.
    const double bytes = 4.0 * 1024 * 258;
    CHECK(static_cast<double>(slow[1].bytes) > bytes);
    CHECK(static_cast<double>(slow[1].bytes) < 1.6 * bytes);
    CHECK(slow[1].step_s > bytes / 1e6);
    CHECK(slow[1].step_s < 0.1 + 1.6 * bytes / 1e6);
  }
}

TEST_CASE("a job that waits for its link is told which keys help") {
  constexpr comm::LinkSpeed kMiddling{.latency = 1e-4, .bytes_per_second = 1.5e7};
  const PlanRequest of_two{.hosts = {2}, .stages = {0}, .link = kMiddling};
  const PlannedJob waits = Job().jobs(of_two)[0];
  const auto per_sample = [](const PlannedJob& job) {
    return job.step_s / static_cast<double>(job.samples);
  };
  const auto better = [&](const std::string& key, const std::string& set) {
    const PlannedJob job = Job({set}).jobs(of_two)[0];
    CHECK_THAT(waits.breaks,
               ContainsSubstring(
                   key + formatted(" is %.2g times as fast", per_sample(waits) / per_sample(job))));
  };
  better("parallel.compression: bf16", "parallel.compression=bf16");
  better("trainer.accumulate: 4 (batch 64)", "trainer.accumulate=4");
}

TEST_CASE("a higher stage takes less memory of each replica") {
  const auto jobs = Job().jobs({.hosts = {8}, .link = kFast});
  REQUIRE(jobs.size() == 4);
  const double values = 1024 * 258 * 4;
  CHECK(static_cast<double>(jobs[0].memory) > 4 * values);
  CHECK(jobs[1].memory < jobs[0].memory);
  CHECK(static_cast<double>(jobs[1].memory) > 2 * values);
}

TEST_CASE("a plan names what does not work first") {
  const auto breaks = [](const std::vector<std::string>& sets, const PlanRequest& request) {
    return Job(sets).jobs(request)[0].breaks;
  };
  CHECK_THAT(breaks({}, {.hosts = {17}, .host_replicas = 1024, .stages = {0}, .link = kFast}),
             ContainsSubstring("config: parallel: replicas must be from 1 to 16384, not 17408"));
  CHECK(breaks({"data.samples=100"}, {.hosts = {128}, .stages = {0}, .link = kFast}) ==
        "batch: there are 100 samples for 128 replicas");
  CHECK(breaks({"trainer.global_batch=64"}, {.hosts = {128}, .stages = {0}, .link = kFast}) ==
        "batch: trainer.global_batch is 64, for 128 replicas");
  CHECK_THAT(breaks({"trainer.global_batch=64"}, {.hosts = {3}, .stages = {0}, .link = kFast}),
             ContainsSubstring("must be a multiple of parallel.replicas, which is 3"));
  CHECK_THAT(breaks({"data.drop_last=true"}, {.hosts = {600}, .stages = {0}, .link = kFast}),
             ContainsSubstring("batch: ") && ContainsSubstring("leaves no step"));
  CHECK_THAT(breaks({"model.hidden=[1000000]"},
                    {.hosts = {2}, .host_replicas = 512, .stages = {0}, .link = kFast}),
             ContainsSubstring("memory: host 0 takes "));
  Job hasty;
  hasty.config.launch.timeout = std::chrono::milliseconds(20);
  CHECK_THAT(hasty.jobs({.hosts = {500}, .stages = {0}, .link = kFast})[0].breaks,
             ContainsSubstring("store: host 0 sends ") &&
                 ContainsSubstring(" s of the 0 of parallel.timeout_s"));
}

TEST_CASE("a plan that makes no sense is refused") {
  const auto refusal = [](const PlanRequest& request) {
    return message_of<ValueError>([&] { check_request(request); });
  };
  CHECK(refusal({}) == "a plan needs numbers of hosts");
  CHECK(refusal({.hosts = {1, 0}}) == "numbers of hosts are from 1 to 16384, not 0");
  CHECK(refusal({.hosts = {1}, .host_replicas = 0}) ==
        "replicas of a host are from 1 to 1024, not 0");
  CHECK(refusal({.hosts = {1}, .stages = {4}}) == "ZeRO stages are 0 to 3, not 4");
  CHECK(message_of<ValueError>([] { (void)link_called("40"); }) ==
        "'40' is no speed of a link, such as '0.21 ms, 117 MB/s', and none of 1, 10, 25, 100 "
        "(Ethernet's Gbit/s)");
  CHECK(link_called("0.05 ms, 1.2 GB/s") == comm::LinkSpeed{0.05e-3, 1.2e9});
  CHECK(link_called("1").bytes_per_second == Approx(117.7e6).epsilon(1e-3));
}

TEST_CASE("a plan is a text, a table, JSON and a picture") {
  const Plan plan =
      Job({"trainer.global_batch=8"}).plan({.hosts = {1, 4, 16}, .stages = {0, 2}, .link = kFast});
  const std::string text = plan_text(plan);
  CHECK_THAT(text, ContainsSubstring("a microbatch of 8 samples takes 1 ms to make, 10 ms forward, "
                                     "21 ms backward; an update of all 4 ms") &&
                       ContainsSubstring("\nhosts  replicas  stage ") &&
                       ContainsSubstring("batch: trainer.global_batch is 8, for 16 replicas") &&
                       !ContainsSubstring("On 16 hosts"));
  CHECK_THAT(text, !ContainsSubstring("waited for a core"));
  Plan disturbed = plan;
  disturbed.profile.waited = 0.5;
  CHECK_THAT(plan_text(disturbed), ContainsSubstring("\nThreads waited for a core in 50% of "));
  const auto json = plan_json(plan);
  REQUIRE(json["jobs"].size() == 6);
  CHECK(json["jobs"][0]["step_s"] == plan.jobs[0].step_s);
  CHECK(json["jobs"][1]["zero_stage"] == 2);
  CHECK(json["jobs"][5]["breaks"] == "batch: trainer.global_batch is 8, for 16 replicas");
  CHECK_FALSE(json["jobs"][5].contains("step_s"));
  const auto lines = testing::lines_of(plan_csv(plan));
  REQUIRE(lines.size() == 7);
  CHECK_THAT(lines[0], Catch::Matchers::StartsWith("hosts,replicas,zero_stage,step_s,exposed_s,"));
  CHECK_THAT(lines[5], Catch::Matchers::StartsWith("16,16,0,\"\",\"\","));
  const std::string svg = plan_svg(plan);
  CHECK(testing::count(svg, "class=\"curve\"") == (4 + 1) * 2);
  CHECK_THAT(svg, ContainsSubstring(">ZeRO stage 2</text>") && !ContainsSubstring("nan") &&
                      !ContainsSubstring("inf"));
}

TEST_CASE("a few steps of a job are measured on this host, of several replicas at once") {
  const Job job;
  for (const std::int64_t replicas : {1, 2}) {
    const StepProfile profile = measure_steps(job.config, job.data, replicas);
    CHECK(profile.replicas == replicas);
    CHECK(profile.steps >= 3);
    REQUIRE(profile.ready.size() == 4);
    // The last layer's come before the first one's.
    CHECK(profile.ready[2] > 0);
    CHECK(profile.ready[0] > profile.ready[2]);
    CHECK(profile.backward >= profile.ready[0]);
    CHECK(profile.forward > 0);
    CHECK(profile.update > 0);
    CHECK(profile.activations > 8 * 1024 * 4);
    CHECK(profile.first > profile.forward);
  }
  CHECK_THROWS_AS(measure_steps(job.config, job.data, 5000), ValueError);
}

}  // namespace lockstep::plan
