#include "trainers/plan/plan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include <sys/resource.h>

#include "framework/base/exact_sum.h"
#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/simulated_network.h"
#include "framework/data/sampler.h"
#include "framework/launch/host_links.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/buffer_plan.h"
#include "framework/training/module_parameters.h"
#include "framework/training/sharded_update.h"
#include "models/model.h"
#include "trainers/config/config_options.h"
#include "trainers/plan/step_timeline.h"
#include "trainers/run/check_job.h"
#include "trainers/run/memory_report.h"

namespace lockstep::plan {
namespace {

using Kind = comm::Verb::Kind;

// What TCP over Ethernet leaves of a cable: 1448 bytes of 1538.
constexpr double kPayload = 1448.0 / 1538;

// Some hosts, at all stages.
class HostsPlan {
 public:
  HostsPlan(const Config& config, const DataSets& data,
            const training::ModuleParameters& parameters, const StepProfile& profile,
            const PlanRequest& request, std::int64_t hosts)
      : config_(config),
        data_(data),
        parameters_(parameters),
        profile_(profile),
        request_(request),
        hosts_(hosts),
        replicas_(hosts * request.host_replicas),
        network_(static_cast<int>(hosts), static_cast<int>(request.host_replicas), request.link) {
    config_.launch.replicas = replicas_;
    config_.launch.workers = 0;
    config_.launch.hosts.count = hosts;
    config_.launch.hosts.replicas = hosts == 1 ? 0 : request.host_replicas;
  }

  // At each of these stages.
  std::vector<PlannedJob> jobs(const std::vector<int>& stages) {
    std::vector<PlannedJob> jobs;
    for (const int stage : stages) jobs.push_back(job_with_step(stage));
    for (PlannedJob& job : jobs) finish(job);  // once all connections are known
    return jobs;
  }

 private:
  [[nodiscard]] Config config_at(int stage) const {
    Config config = config_;
    config.zero.stage = stage;
    return config;
  }

  PlannedJob job_with_step(int stage) {
    const Config config = config_at(stage);
    PlannedJob job{.hosts = hosts_, .replicas = replicas_, .stage = stage};
    const SamplerOptions sampler = sampler_options(config, data_);
    if (sampler.batch_size == 0) {
      job.breaks = str("batch: trainer.global_batch is ", *config.trainer.global_batch, ", for ",
                       counted(replicas_, "replica"));
      return job;
    }
    job.breaks = refusal_of(config);
    if (!job.breaks.empty()) return job;
    job.steps = steps_of(config, sampler);
    job.samples = std::min(sampler.size, sampler.batch_size * replicas_);
    const auto [work, calls] = step_of(config, job);
    const StepTime time = step_time(work, calls);
    job.step_s = time.seconds;
    job.exposed_s = time.exposed;
    job.efficiency = work.computing() / time.seconds;
    return job;
  }

  void finish(PlannedJob& job) const {
    if (job.step_s == 0) return;
    const Config config = config_at(job.stage);
    job.connections = network_.connections();
    job.start = start_up(job);
    job.hours = (job.start.seconds + static_cast<double>(job.steps) * job.step_s) / 3600;
    const HostMemoryUse use = predicted_memory(config, data_, link_cost().value_or(LinkCost{}));
    const auto activations = static_cast<std::int64_t>(static_cast<double>(profile_.activations) *
                                                       part_of_batch(config));
    const std::int64_t of_host = use.host.total() + request_.host_replicas * activations;
    job.memory = of_host / request_.host_replicas;
    // Host 0's launcher has the job's layout once for each other host until it is sent.
    job.breaks = problem_of(job, of_host + job.start.bytes);
  }

  [[nodiscard]] bool overlaps() const { return hosts_ > 1 && config_.zero.overlap != Overlap::off; }
  [[nodiscard]] std::optional<LinkCost> link_cost() const {
    if (!overlaps()) return {};
    return training::link_cost(
        [&](std::size_t bytes) { return network_.all_reduce_seconds(bytes); });
  }

  // How much of the measured microbatch one of this job has.
  [[nodiscard]] double part_of_batch(const Config& config) const {
    const SamplerOptions options = sampler_options(config, data_);
    const auto own = static_cast<double>(
        std::max<std::int64_t>(1, std::min(options.batch_size, options.size / replicas_)));
    return std::min(1.0, own / static_cast<double>(microbatches(config) * profile_.samples));
  }

  static std::int64_t steps_of(const Config& config, SamplerOptions options) {
    options.drop_last = options.drop_last && options.batch_size * options.replicas <= options.size;
    return total_steps(config, Sampler(options));
  }

  std::pair<StepWork, StepCalls> step_of(const Config& config, PlannedJob& job) {
    const int stage = job.stage;
    // Replicas for which a host has no cores at once take turns.
    const double turns = std::max(
        1.0, static_cast<double>(request_.host_replicas) / static_cast<double>(profile_.replicas));
    const double part = turns * part_of_batch(config);
    StepWork work{.data = part * profile_.data,
                  .forward = part * profile_.forward,
                  .backward = part * profile_.backward,
                  .rest = hosts_ == 1 || request_.host_replicas == 1 ? turns * profile_.rest : 0,
                  .update = turns * profile_.update,
                  .microbatches = microbatches(config),
                  .reduces_every_microbatch =
                      config.zero.reduce_every_microbatch && microbatches(config) > 1};
    // Replicas that hold a copy together share what all of them would update.
    work.update /=
        static_cast<double>(stage == 0 || hosts_ == 1 ? request_.host_replicas : replicas_);
    if (hosts_ == 1) return {work, {}};
    const tree::FlatLayout layout = training::flat_layout(
        parameters_, backward_order(), config.zero.bucket_mb, link_cost(), replicas_, stage == 3);
    const bool halves = config.zero.compression != Compression::none;
    for (const tree::FlatBucket& bucket : layout.buckets()) {
      const at::ScalarType type = training::gradient_dtype(bucket);
      const bool is_half = halves && type == at::kFloat;
      BucketWork& made = work.buckets.emplace_back(BucketWork{
          .gradient_bytes = static_cast<std::size_t>(bucket.bytes(is_half ? at::kBFloat16 : type)),
          .parameter_bytes = static_cast<std::size_t>(bucket.bytes(bucket.dtype)),
          .may_be_late = stage > 0,
          .is_cut = bucket.group != 0});
      double last = 0;
      for (const std::size_t item : bucket.items) {
        last = std::max(last, profile_.ready[item]);
        made.may_be_late = made.may_be_late && parameters_.block_of[item] != 0;
      }
      made.ready = part * last;
      // The forward goes the backward's way from its end.
      made.needed = work.forward * std::max(0.0, 1 - last / profile_.backward);
    }
    const auto call = [this, halves](Kind kind, std::size_t bytes) {
      return network_.run(kind, bytes, halves && kind != Kind::all_gather).seconds;
    };
    StepCalls calls{.per_call = overlaps() ? training::kOfCall : 0, .overlaps = overlaps()};
    const Kind reduction = stage == 0 ? Kind::all_reduce : Kind::reduce_scatter;
    calls.reduce = [=](std::size_t bytes) { return call(reduction, bytes); };
    if (stage > 0) calls.gather = [=](std::size_t bytes) { return call(Kind::all_gather, bytes); };
    const std::size_t votes = static_cast<std::size_t>(replicas_) * sizeof(training::StepVote) +
                              (stage == 0 ? 0 : ExactSum::kLimbs * sizeof(std::int64_t));
    calls.votes = network_.run(Kind::all_reduce, votes).seconds;
    count(work, reduction, halves, votes, job);
    return {work, calls};
  }

  // The messages and bytes of a step.
  void count(const StepWork& work, Kind reduction, bool halves, std::size_t votes,
             PlannedJob& job) {
    const auto add = [&](const comm::SimulatedCall& call, std::int64_t times) {
      job.messages += times * call.messages;
      job.bytes += times * call.bytes;
    };
    for (const BucketWork& bucket : work.buckets) {
      add(network_.run(reduction, bucket.gradient_bytes, halves),
          work.reduces_every_microbatch ? work.microbatches : 1);
      if (job.stage == 0) continue;
      add(network_.run(Kind::all_gather, bucket.parameter_bytes),
          bucket.is_cut ? 2 * work.microbatches : 1);
    }
    add(network_.run(Kind::all_reduce, votes), 1);
  }

  // As the measured backward has completed them.
  [[nodiscard]] std::vector<std::size_t> backward_order() const {
    std::vector<std::size_t> order = consecutive(std::size_t{0}, profile_.ready.size());
    std::ranges::stable_sort(order, {}, [&](std::size_t item) {
      // Those without a gradient come last, in reverse order.
      const bool has_none = profile_.ready[item] == 0;
      return std::tuple(has_none, profile_.ready[item],
                        has_none ? -static_cast<std::int64_t>(item) : 0);
    });
    return order;
  }

  // The hosts meet: host 0 tells each other one the job's layout, and the addresses that its
  // replicas ask for. They measure the links, and connect when a call needs it first.
  [[nodiscard]] StartUp start_up(const PlannedJob& job) const {
    StartUp start{.seconds = profile_.first};
    if (hosts_ == 1) return start;
    const std::int64_t others = hosts_ - 1;
    const auto size = [](const auto& record) {
      return static_cast<std::int64_t>(encode(record).size());
    };
    const launcher::JobPlan plan = launcher::make_plan(
        config_.launch, std::vector(static_cast<std::size_t>(hosts_), request_.host_replicas),
        std::vector(static_cast<std::size_t>(hosts_), request_.host_replicas));
    const std::int64_t published =
        size(launcher::Published{str("address/", replicas_), "255.255.255.255:65535"});
    start.messages = others * (2 + job.connections);
    start.bytes = others * (size(launcher::Begins{plan, ""}) + size(launcher::Ready{}) +
                            job.connections * published);
    // Latencies: TCP's and the greeting's, and what launchers say; an address asked for, and these.
    constexpr double kToMeet = 8, kToConnect = 6;
    start.seconds +=
        (kToMeet + kToConnect * static_cast<double>(job.connections)) * request_.link.latency +
        comm::seconds_to_measure(request_.link) +
        static_cast<double>(start.messages) * comm::kPerMessage +
        static_cast<double>(start.bytes) / request_.link.bytes_per_second;
    return start;
  }

  [[nodiscard]] std::string problem_of(const PlannedJob& job, std::int64_t of_host) const {
    const std::int64_t samples = data_.train->size();
    if (replicas_ > samples) {
      return str("batch: there are ", counted(samples, "sample"), " for ",
                 counted(replicas_, "replica"));
    }
    const auto left = static_cast<std::int64_t>(memory_of_host());
    if (of_host > left) {
      return str("memory: host 0 takes ", text_of_bytes(of_host), ", and this one has ",
                 text_of_bytes(left), " left");
    }
    if (std::string text = problem_of_store(job.start); !text.empty()) return text;
    if (job.exposed_s > job.step_s / 2) {
      return str("link: replicas wait ", std::lround(100 * job.exposed_s / job.step_s),
                 "% of a step", link_advice(job));
    }
    return "";
  }

  // The keys that would make the job faster.
  [[nodiscard]] std::string link_advice(const PlannedJob& job) const {
    std::vector<std::string> texts;
    const auto look = [&](const std::string& text, const Config& changed) {
      HostsPlan other(changed, data_, parameters_, profile_, request_, hosts_);
      const PlannedJob its = other.job_with_step(job.stage);
      if (its.step_s == 0) return;
      const double faster = job.step_s / static_cast<double>(job.samples) *
                            static_cast<double>(its.samples) / its.step_s;
      if (faster < 1.05) return;
      texts.push_back(str(text, its.samples == job.samples ? "" : str(" (batch ", its.samples, ")"),
                          formatted(" is %.2g times as fast", faster)));
    };
    Config changed = config_;
    changed.zero.compression = Compression::bf16;
    if (config_.zero.compression == Compression::none) look("parallel.compression: bf16", changed);
    changed = config_;
    changed.zero.accumulate *= 4;
    if (!config_.trainer.global_batch)
      look(str("trainer.accumulate: ", changed.zero.accumulate), changed);
    return texts.empty() ? "; a faster link helps" : "; " + join(texts);
  }

  // What `train` would refuse: its first line.
  [[nodiscard]] std::string refusal_of(const Config& config) const {
    const auto first_line = [](const ValueError& error) {
      const std::string text = error.what();
      return text.substr(0, text.find('\n'));
    };
    try {
      Config checked = config;
      for (const keys::Section& section : config_table(checked)) {
        // What depends on the number of replicas. A key that is not used prints nothing.
        if (section.name != "parallel" && section.name != "trainer") continue;
        for (const keys::ConfigKey& key : section.keys) {
          if (!key.value.print().empty()) keys::check(section.name, {key});
        }
      }
    } catch (const ValueError& error) {
      return "config: " + first_line(error);
    }
    try {
      check_job(config, data_);
    } catch (const ValueError& error) {
      return "batch: " + first_line(error);
    }
    return "";
  }

  // Host 0's launcher has a link to each other one.
  [[nodiscard]] std::string problem_of_store(const StartUp& start) const {
    const auto files = limit_of(RLIMIT_NOFILE);
    if (hosts_ > 1 && files && static_cast<std::size_t>(hosts_) + kOwnFiles > *files) {
      return str("store: host 0 needs ", hosts_ - 1, " links, and ", *files,
                 " open files are allowed (ulimit -n)");
    }
    const double most = std::chrono::duration<double>(config_.launch.timeout).count();
    if (start.seconds - profile_.first > most) {
      return str("store: host 0 sends ", start.messages, " messages at the start, which take ",
                 std::lround(start.seconds - profile_.first), " s of the ", std::lround(most),
                 " of parallel.timeout_s");
    }
    return "";
  }

  static constexpr std::size_t kOwnFiles = 64;  // that a launcher has beside its links

  Config config_;
  const DataSets& data_;
  const training::ModuleParameters& parameters_;
  const StepProfile& profile_;
  const PlanRequest& request_;
  std::int64_t hosts_;
  std::int64_t replicas_;
  comm::SimulatedHosts network_;
};

}  // namespace

void check_request(const PlanRequest& request) {
  require(!request.hosts.empty(), "a plan needs numbers of hosts");
  for (const std::int64_t hosts : request.hosts) {
    require(hosts >= 1 && hosts <= kMostReplicas, "numbers of hosts are from 1 to ", kMostReplicas,
            ", not ", hosts);
  }
  require(request.host_replicas >= 1 && request.host_replicas <= kMostReplicasOfHost,
          "replicas of a host are from 1 to ", kMostReplicasOfHost, ", not ",
          request.host_replicas);
  for (const int stage : request.stages) {
    require(kStageRule.holds(stage), "ZeRO stages are 0 to 3, not ", stage);
  }
}

Plan plan_of(const Config& config, const DataSets& data, const StepProfile& profile,
             const PlanRequest& request) {
  check_request(request);
  const auto model = make_model(config, data.train->type());
  const training::ModuleParameters parameters = training::module_parameters(*model);
  require(profile.ready.size() == parameters.tensors.size(), "the plan's profile is of ",
          profile.ready.size(), " parameters, and the model trains ", parameters.tensors.size());
  Plan plan{.request = request, .profile = profile};
  for (const std::int64_t hosts : request.hosts) {
    HostsPlan on_hosts(config, data, parameters, profile, plan.request, hosts);
    std::ranges::move(on_hosts.jobs(request.stages), std::back_inserter(plan.jobs));
  }
  plan.parameters = sum_of(model->parameters(), &at::Tensor::numel);
  return plan;
}

comm::LinkSpeed link_called(const std::string& text) {
  struct Ethernet {
    const char* name;
    double latency;
    double gigabits;
  };
  constexpr std::array<Ethernet, 4> kKinds{
      {{"1", 1e-4, 1}, {"10", 5e-5, 10}, {"25", 3e-5, 25}, {"100", 2e-5, 100}}};
  const auto kind = std::ranges::find(kKinds, text, &Ethernet::name);
  if (kind == kKinds.end()) {
    try {
      return comm::LinkSpeed::parse(text);
    } catch (const ValueError& error) {
      throw ValueError(str(error.what(), ", and none of ", join(mapped(kKinds, &Ethernet::name)),
                           " (Ethernet's Gbit/s)"));
    }
  }
  return {.latency = kind->latency, .bytes_per_second = kind->gigabits * 1e9 / 8 * kPayload};
}

}  // namespace lockstep::plan
