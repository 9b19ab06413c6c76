// What replicas record of their steps, and what follows from it.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <torch/optim/sgd.h>

#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/data/loader.h"
#include "framework/launch/launch.h"
#include "framework/timeline/step_times.h"
#include "framework/training/data_parallel.h"
#include "framework/training/phase.h"
#include "framework/training/sharded_optimizer.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/run/trainer.h"

using namespace lockstep;
using namespace lockstep::testing;
using timeline::SpanKind;

namespace {

using Spans = std::vector<timeline::Recorder::Span>;

// The kinds of spans, with what is within each: "step(data forward)".
std::string tree_of(const Spans& spans, std::size_t& next, std::uint64_t end) {
  std::vector<std::string> texts;
  while (next < spans.size() && spans[next].begin < end) {
    const auto& span = spans[next++];
    const std::string inner = tree_of(spans, next, span.end);
    texts.push_back(name_of(span.kind) + (inner.empty() ? "" : "(" + inner + ")"));
  }
  return join(texts, " ");
}
std::string tree_of(Spans spans) {
  // Some are recorded when they are over.
  std::ranges::stable_sort(spans, {},
                           [](const auto& span) { return std::pair(span.begin, ~span.end); });
  std::size_t next = 0;
  return tree_of(spans, next, ~std::uint64_t{0});
}

// What the replicas of a job in threads have recorded, whose functions have all ended.
std::vector<timeline::ReplicaRecording> recordings_of(LaunchOptions job,
                                                      const std::function<void()>& replica) {
  std::vector<timeline::ReplicaRecording> recordings;
  job.mode = LaunchMode::threads;
  const int status = launch(
      [&] {
        replica();
        barrier(job.axis_name);
        if (axis_index(job.axis_name) == 0) {
          recordings = timeline::read_replicas(timeline::track_here->recorder());
        }
      },
      job);
  REQUIRE(status == 0);
  REQUIRE(std::ssize(recordings) == job.replicas);
  for (auto& recording : recordings) recording.tracks[0].spans.pop_back();  // the barrier
  return recordings;
}

// A module that weighs what it gets.
struct Weight : torch::nn::Module {
  Weight() { weight = register_parameter("weight", at::ones({4})); }
  at::Tensor weight;
};

}  // namespace

TEST_CASE("a trainer's replicas record the same steps, whose parts are within them") {
  const TemporaryFolder folder;
  const Config config = parse_config(
      "model: {name: linear}\n"
      "data: {name: pmean_example, batch_size: 4}\n"
      "parallel: {replicas: 2, launch: threads, zero_stage: 1}\n"
      "trainer: {steps: 3, accumulate: 2, log_every: 1, eval_every: 2}\n"
      "checkpoint: {every: 2, async: false}\n",
      "test");
  const DataSets data{.train = made_set({.size = 64}), .test = made_set({.size = 8})};
  const RunOptions options{.output = folder.path() / "run", .quiet = true};
  const RunFolderLock lock = claim_run_folder(options.output, to_yaml(config));
  const auto recordings =
      recordings_of(config.launch, [&] { Trainer(config, data, options).run(); });
  const Spans& first = recordings[0].tracks[0].spans;
  const Spans& second = recordings[1].tracks[0].spans;
  CHECK(tree_of(first) == tree_of(second));
  const std::string step =
      "step(data forward backward data forward backward(reduction) update(collective gather))";
  CHECK_THAT(tree_of(first), ContainsSubstring(") " + step + " evaluation("));
  CHECK_THAT(tree_of(first), ContainsSubstring(") checkpoint(collective"));
  CHECK_THAT(tree_of(first), ContainsSubstring(") " + step + " checkpoint("));
  CHECK_THAT(tree_of(first), ContainsSubstring(") evaluation("));
  REQUIRE(first.size() == second.size());
  std::set<std::uint64_t> calls;
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    INFO(i << ": " << name_of(first[i].kind) << " " << first[i].name);
    CHECK(first[i].id == second[i].id);
    CHECK(first[i].bytes == second[i].bytes);
    CHECK(first[i].end != 0);
    switch (first[i].kind) {
      case SpanKind::collective:
      case SpanKind::reduction:
      case SpanKind::gather:
        CHECK(calls.insert(first[i].id).second);
        break;
      case SpanKind::step:
        CHECK(first[i].id == ++number);
        break;
      case SpanKind::forward:
      case SpanKind::backward:
      case SpanKind::update:
        CHECK(first[i].id == number);
        break;
      default:
        break;
    }
    if (first[i].kind == SpanKind::reduction) CHECK(first[i].bytes >= 8);  // w and b
  }
  const timeline::StepTimes times = timeline::step_times(recordings);
  CHECK(times.steps.size() == 3);
  for (const auto part : {timeline::TimePart::update, timeline::TimePart::evaluation,
                          timeline::TimePart::checkpoint}) {
    CHECK(times.sums().at(1).of(part) > 0);
  }
}

TEST_CASE("in loops of one's own the replica that is slow is found, and who waits for it") {
  constexpr int kSteps = 20;  // in a few of them a busy machine may hold up any replica
  const auto data = made_set({.size = 8});
  std::vector<double> told;  // how long each one's own work has taken for the last step
  const auto train = [&](bool has_optimizer) {
    const auto module = std::make_shared<Weight>();
    std::unique_ptr<ZeroTrainer> zero;
    std::unique_ptr<DataParallel> averaging;
    std::unique_ptr<ShardedOptimizer> optimizer;
    if (has_optimizer) {
      zero = std::make_unique<ZeroTrainer>(*module, ZeroOptions{});
    } else {
      averaging = std::make_unique<DataParallel>(*module);
      optimizer = std::make_unique<ShardedOptimizer>(*module, [](std::vector<at::Tensor> own) {
        return std::make_unique<torch::optim::SGD>(std::move(own), 0.1);
      });
    }
    Loader loader(*data, {.threads = 0});
    const bool is_slow = axis_index("data") == 1;
    for (int step = 0; step < kSteps; ++step) {
      loader.request({axis_index("data")}, 0);
      const at::Tensor samples = loader.next().inputs;
      at::Tensor loss;
      {
        const RecordedPhase forward(Phase::forward);
        if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        loss = (module->weight * samples.sum()).sum();
      }
      if (zero) {
        zero->backward(loss);
        (void)zero->step(0.1);
      } else {
        averaging->backward(loss);
        optimizer->step();
        module->zero_grad();
      }
    }
    if (zero && axis_index("data") == 0) told = zero->own_seconds();
    if (zero && !zero->link_rates().empty()) throw Error("there is one host");
  };
  for (const bool has_optimizer : {true, false}) {
    INFO(has_optimizer);
    const auto recordings = recordings_of({.replicas = 3}, [&] { train(has_optimizer); });
    CHECK_THAT(tree_of(recordings[2].tracks[0].spans),
               ContainsSubstring(
                   has_optimizer
                       ? " step(data forward backward(reduction) update(collective gather)) step("
                       : " step(data forward backward(reduction collective)) step(update("));
    std::vector<std::uint64_t> forwards;
    for (const auto& span : recordings[0].tracks[0].spans) {
      if (span.kind == SpanKind::forward) forwards.push_back(span.id);
    }
    std::vector<std::uint64_t> numbers(kSteps);
    std::iota(numbers.begin(), numbers.end(), 1);
    numbers[0] = 0;  // nobody knows when the first has begun
    CHECK(forwards == numbers);
    const timeline::StepTimes times = timeline::step_times(recordings);
    CHECK(times.steps.size() == kSteps - 1);
    REQUIRE(times.slow());
    CHECK(times.slow()->replica == 1);
    CHECK(times.slow()->seconds_a_step > 0.003);
    CHECK(times.sums().at(1).of(timeline::TimePart::forward) > 0.18);
    CHECK(times.sums().at(1).of(timeline::TimePart::update) > 0);
    CHECK(times.sums().at(0).waited_for.at(1) > 0.02);
    CHECK(times.sums().at(2).waited_for.at(1) > 0.02);
    CHECK(times.waiting_share() > 0.2);
    REQUIRE(told.size() == 3);
    CHECK(told[1] >= 0.01);
  }
}
