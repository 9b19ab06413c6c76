// What a run leaves that ends by an error.

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/comm/run_lock.h"
#include "framework/launch/launch.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/training/batch_norm.h"
#include "framework/training/block.h"
#include "models/layers.h"
#include "models/model.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/launch/launched.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"
#include "tests/support/programs.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/run/resume.h"
#include "trainers/run/trainer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace testing;

// Where a replica throws, once it has done so many steps.
struct Fault {
  std::string where;
  std::int64_t replica = 1;
  std::int64_t after = 5;
};
std::optional<Fault> fault;
std::array<std::atomic<std::int64_t>, 8> steps_done;  // by replica
bool launcher_is_parent = true;                       // replicas are no threads of it

bool is_due(const std::string& where) {
  const auto replica = static_cast<std::size_t>(axis_index("data"));
  return fault && fault->where == where && steps_done[replica] >= fault->after;
}

// Asks the job to stop, as an engine does, and waits until replicas are told.
void ask_to_stop() {
  if (stop_requested()) return;
  ::kill(launcher_is_parent ? ::getppid() : ::getpid(), SIGUSR1);
  (void)eventually([] { return stop_requested(); });
}

void may_throw(const std::string& where) {
  if (!is_due(where) || axis_index("data") != fault->replica) return;
  if (where.starts_with("stop")) return ask_to_stop();
  if (where.starts_with("killed"))
    ::kill(0, SIGKILL);  // the job's launcher and all of its replicas
  if (where == "backward") throw std::runtime_error("the fault in backward");
  throw DataError("the fault in " + where);
}

// As on a full disk, in this process: what would make a file longer fails.
void let_files_grow_to(std::uintmax_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

class FaultyLayer final : public Block {
 public:
  FaultyLayer(std::int64_t in, std::int64_t out, const std::string& path, const Key& key) {
    weight_ = register_parameter("weight", uniform({out, in}, 0.7, key.fold(path + ".weight")));
    bias_ = register_parameter("bias", uniform({out}, 0.7, key.fold(path + ".bias")));
  }
  at::Tensor forward(const at::Tensor& input) override { return at::linear(input, weight_, bias_); }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

// Two layers with a batch normalization behind each, between which it may throw.
class FaultyModel final : public Model {
 public:
  explicit FaultyModel(const Key& key) {
    first_ = register_module("first", std::make_shared<FaultyLayer>(2, 9, "first", key));
    norm_ = register_module("norm", BatchNorm(9));
    second_ = register_module("second", std::make_shared<FaultyLayer>(9, 7, "second", key));
    last_norm_ = register_module("last_norm", BatchNorm(7));
    last_ = register_module("last", std::make_shared<FaultyLayer>(7, 3, "last", key));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor values = (*first_)(inputs);
    if (is_training() && is_due("loss")) values = values * std::numeric_limits<double>::infinity();
    values = at::relu(norm_->forward(values));
    if (is_training()) may_throw("forward");
    values = (*second_)(values);
    if (values.requires_grad()) {
      (void)values.register_hook([](const at::Tensor& /*gradient*/) { may_throw("backward"); });
    }
    return (*last_)(at::relu(last_norm_->forward(values)));
  }

 private:
  std::shared_ptr<FaultyLayer> first_, second_, last_;
  BatchNorm norm_{nullptr}, last_norm_{nullptr};
};

class FaultyMetric final : public Metric {
 public:
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& /*targets*/) const override {
    may_throw_here();
    return at::zeros({1}, at::kDouble).add_(static_cast<double>(outputs.size(0)));
  }
  double value(const at::Tensor& sums) const override { return sums.item<double>(); }
  bool higher_is_better() const override { return true; }

 private:
  // check_job() tries it outside of replicas.
  static void may_throw_here() {
    if (!fault || current_environment() == nullptr) return;
    may_throw("metric");
    may_throw("stop in an evaluation");
  }
};

std::shared_ptr<const Dataset> faulty_points(std::int64_t size) {
  return made_set(
      {.size = size, .type = class_sample({2}, 3), .make = [](const MadeSample& sample) {
         if (fault && current_environment() != nullptr) may_throw("data");
         make_point(sample);
       }});
}

void register_faulty() {
  static const bool done = [] {
    register_model(
        model_kind("faulty", "may throw", [](const SampleType& /*sample*/, const Key& key) {
          return std::make_shared<FaultyModel>(key);
        }));
    register_metric(
        {keys::choice("fault", "may throw"), [](const std::shared_ptr<const Loss>& /*loss*/) {
           return std::make_shared<FaultyMetric>();
         }});
    return true;
  }();
  (void)done;
}

struct Placement {
  std::string parallel;
  std::string trainer;
  std::string checkpoint;
  std::int64_t hosts = 1;
};

Config config_of(const Placement& placement, const std::string& every) {
  register_faulty();
  return parse_config(
      "model: {name: faulty}\n"
      "data: {name: pmean_example, batch_size: 3}\n"
      "optimizer: {name: adam, lr: 0.02}\n"
      "parallel: {replicas: 3, threads_per_replica: 1, " +
          placement.parallel +
          "}\n"
          "trainer: {steps: 12, eval_every: 4, log_every: 5, metrics: [fault], ema_decay: 0.9, "
          "patience: 50" +
          placement.trainer + "}\ncheckpoint: {best: loss, " + placement.checkpoint + every + "}\n",
      "test");
}

DataSets faulty_data() {
  return {.train = faulty_points(42), .validation = faulty_points(11), .test = faulty_points(7)};
}

// Whether a replica that has thrown waits for the others, to save.
bool has_meeting(const fs::path& output) {
  for (const auto& entry : fs::directory_iterator(checkpoints_of(output))) {
    if (entry.path().filename().string().starts_with(".step-meeting")) return true;
  }
  return false;
}

RunOptions options_of(const fs::path& output) {
  RunOptions options{.output = output, .quiet = true};
  options.callbacks.after_step = [output](Trainer& /*trainer*/, const StepEnd& step) {
    steps_done[static_cast<std::size_t>(axis_index("data"))] = step.step;
    may_throw("callback");
    may_throw("stop before an evaluation");
    if (is_due("full disk at a line") && axis_index("data") == 0) {
      let_files_grow_to(fs::file_size(output / "metrics.jsonl") + 20);
    }
    if (is_due("full disk") && axis_index("data") == 1) let_files_grow_to(0);
    if (is_due("full disk") && axis_index("data") == 0) throw Error("the disk is full");
    // Later than the others wait for it.
    if (is_due("late") && axis_index("data") == fault->replica) {
      std::this_thread::sleep_for(std::chrono::seconds(10));
    }
  };
  options.callbacks.after_evaluation = [output](Trainer& /*trainer*/,
                                                const Evaluation& evaluation) {
    may_throw("killed after the evaluation on the " + evaluation.set + " set");
    if (evaluation.set != kValidationSet) return;
    may_throw("told");
    // The others go on where the one that has thrown writes its part already.
    const comm::RunLockRelease others_may_run;
    if (is_due("told")) (void)eventually([&] { return has_meeting(output); });
  };
  return options;
}

std::string errors_of_run;  // of the newest, on all hosts

// Runs a job; returns its status, which is the same on all hosts.
int run(Config config, std::int64_t hosts, const fs::path& output, bool goes_on = false) {
  RunOptions options = options_of(output);
  for (auto& each : steps_done) each = 0;
  const RunFolderLock lock = folder_of_run(config, options, goes_on);
  const DataSets data = faulty_data();
  const auto train = [&] { Trainer(config, data, options).run(); };
  const std::vector<Ended> ended = hosts == 1 ? std::vector{launched(train, config.launch)}
                                              : launched_on_hosts(train, config.launch, hosts);
  errors_of_run.clear();
  for (const Ended& host : ended) errors_of_run += host.err;
  INFO(errors_of_run);
  for (const Ended& host : ended) CHECK(host.status == ended[0].status);
  return ended[0].status;
}

}  // namespace

TEST_CASE("whatever throws in a run leaves the state after the last finished step", "[slow]") {
  const std::vector<Placement> placements{
      {"launch: processes, zero_stage: 0, compression: bf16", ", accumulate: 2", "async: false, "},
      {"launch: threads, zero_stage: 1, backend: gloo, overlap: \"on\", compression: bf16, "
       "bucket_mb: 0.0001",
       "", ""},
      {"launch: processes, zero_stage: 2, backend: gloo, overlap: \"on\"",
       ", accumulate: 2, non_finite: stop", "async: false, "},
      {"launch: threads, zero_stage: 3, backend: gloo, compression: bf16", "", ""},
      {"launch: processes, zero_stage: 1, workers: 2", ", accumulate: 2", ""},
      {"launch: threads, zero_stage: 1, workers: 2", ", accumulate: 2", ""},
      {"launch: processes, zero_stage: 1, overlap: \"on\", compression: bf16", "", "", 2},
      {"launch: processes, zero_stage: 3", ", accumulate: 2", "async: false, ", 2}};
  Sample sample("faults");
  for (const Placement& placement : placements) {
    INFO(placement.parallel << placement.trainer << " on " << placement.hosts << " hosts");
    const TemporaryFolder folder;
    const fs::path whole = folder.path() / "whole";
    fault.reset();
    const int ended = run(config_of(placement, "every: 1, keep: 100"), placement.hosts, whole);
    INFO(errors_of_run);
    REQUIRE(ended == 0);
    for (const std::string where :
         {"data", "forward", "backward", "loss", "callback", "metric", "told"}) {
      INFO(where);
      if (!sample.next()) continue;
      const Config config = config_of(placement, "every: 3, keep: 1");
      const fs::path output = folder.path() / where;
      fault = Fault{.where = where, .replica = where == "forward" ? 0 : 1};
      const int status = run(config, placement.hosts, output);
      INFO(errors_of_run);
      fault.reset();
      CHECK(status == (where == "backward" || where == "loss" ? 1 : 2));
      // Evaluations come at 4 and 8; of the best and of the newest one other remains.
      const bool is_evaluation = where == "metric" || where == "told";
      const std::int64_t last = is_evaluation ? 8 : 5;
      const auto steps = steps_in(output);
      CHECK(steps.contains(last));
      CHECK(steps.contains(is_evaluation ? 6 : 4));
      const fs::path checkpoints = checkpoints_of(output);
      CHECK(fs::read_symlink(checkpoints / "latest") == str("step-0000000", last));
      CHECK(fs::exists(checkpoints / "best"));
      CHECK(checkpoint_info(checkpoints / "best").step == 4);
      CHECK(!has_hidden(checkpoints));
      const fs::path saved = storage::CheckpointFolder(checkpoints).of_step(last);
      const fs::path expected = storage::CheckpointFolder(checkpoints_of(whole)).of_step(last);
      CHECK(tensors_of(saved) == tensors_of(expected));
      if (!is_evaluation) CHECK(said_in(saved) == said_in(expected));

      CHECK(run(config, placement.hosts, output, /*goes_on=*/true) == 0);
      CHECK(result_in(output) == result_in(whole));
      CHECK(metrics_of(output) == metrics_of(whole));
      CHECK(curves_of(output) == curves_of(whole));
      CHECK(said_in(checkpoints / "latest") == said_in(checkpoints_of(whole) / "latest"));
      CHECK(tensors_of(checkpoints / "latest") == tensors_of(checkpoints_of(whole) / "latest"));
    }
  }
}

TEST_CASE("a signal leaves an evaluation to the run that goes on, also in its midst") {
  for (const std::string launch : {"processes", "threads"}) {
    INFO(launch);
    const TemporaryFolder folder;
    const fs::path whole = folder.path() / "whole";
    Config config = config_of({str("zero_stage: 3, launch: ", launch), "", ""}, "every: 3");
    config.launch.on_stop = OnStop::ask;
    launcher_is_parent = launch == "processes";
    fault.reset();
    REQUIRE(run(config, 1, whole) == 0);
    // Evaluations come at 4, 8 and 12.
    for (const auto& [where, after, step] : {std::tuple("stop in an evaluation", 5, 8),
                                             {"stop before an evaluation", 7, 8},
                                             {"stop in an evaluation", 12, 12}}) {
      INFO(where << " " << after);
      const fs::path output = folder.path() / str(where, after);
      fault = Fault{.where = where, .after = after};
      const int status = run(config, 1, output);
      fault.reset();
      INFO(errors_of_run);
      CHECK(status == 143);
      const fs::path latest = checkpoints_of(output) / "latest";
      CHECK(checkpoint_info(latest).step == step);
      CHECK(checkpoint_info(latest).counts.at(kOwesCounts + kValidationSet) == 1);
      CHECK(run(config, 1, output, /*goes_on=*/true) == 0);
      CHECK(result_in(output) == result_in(whole));
      CHECK(metrics_of(output) == metrics_of(whole));
      CHECK(tensors_of(latest) == tensors_of(checkpoints_of(whole) / "latest"));
    }
  }
  launcher_is_parent = true;
}

TEST_CASE("a run that is killed after an evaluation of its last step has its lines once") {
  const TemporaryFolder folder;
  const fs::path whole = folder.path() / "whole";
  const Config config = config_of({"launch: processes", "", ""}, "every: 3");
  fault.reset();
  REQUIRE(run(config, 1, whole) == 0);
  for (const std::string& set : {kValidationSet, kTestSet}) {
    const fs::path output = folder.path() / set;
    for (int kills = 0; kills < 2; ++kills) {  // also the run that goes on
      fault = Fault{.where = "killed after the evaluation on the " + set + " set",
                    .replica = 0,
                    .after = kills == 0 ? 12 : 0};
      CHECK(run(config, 1, output, /*goes_on=*/kills > 0) == 128 + SIGKILL);
    }
    fault.reset();
    CHECK(run(config, 1, output, /*goes_on=*/true) == 0);
    CHECK(result_in(output) == result_in(whole));
    CHECK(metrics_of(output) == metrics_of(whole));
    CHECK(curves_of(output) == curves_of(whole));
  }
  // As a kill leaves it behind the line of the best step.
  fs::remove(whole / "result.json");
  const auto expected = metrics_of(whole);
  const fs::path file = checkpoints_of(whole) / "latest" / storage::kManifestName;
  storage::Manifest manifest = storage::parse_manifest(read_text(file));
  std::erase_if(manifest.figures,
                [](const auto& figure) { return figure.first.starts_with(kTestBestFigures); });
  std::string& lines = manifest.texts.at(kMetricsText);
  lines.resize(lines.rfind('\n', lines.size() - 2) + 1);
  write_text(file, storage::write_manifest(manifest));
  CHECK(run(config, 1, whole, /*goes_on=*/true) == 0);
  CHECK(metrics_of(whole) == expected);
}

TEST_CASE("a full disk at a line of metrics leaves no gap") {
  const TemporaryFolder folder;
  const fs::path whole = folder.path() / "whole";
  Config config = config_of({"launch: processes", "", ""}, "every: 3");
  config.trainer.steps = 140;  // the metrics become the largest file
  config.trainer.log_every = 1;
  fault.reset();
  REQUIRE(run(config, 1, whole) == 0);
  for (const std::int64_t after : {121, 139}) {  // the last line ends a run that has done all steps
    const fs::path output = folder.path() / str("run-", after);
    fault = Fault{.where = "full disk at a line", .after = after};
    CHECK(run(config, 1, output) == 1);
    CHECK_THAT(errors_of_run, ContainsSubstring("metrics.jsonl can't be written: File too large"));
    fault.reset();
    CHECK(!fs::exists(output / "result.json"));
    CHECK(checkpoint_info(checkpoints_of(output) / "latest").step == after + 1);
    CHECK(run(config, 1, output, /*goes_on=*/true) == 0);
    CHECK(result_in(output) == result_in(whole));
    CHECK(metrics_of(output) == metrics_of(whole));
  }
}

TEST_CASE("where no replica can write what it saves, a job ends by the error that was the cause") {
  const TemporaryFolder folder;
  const Config config = config_of({"launch: processes", "", ""}, "every: 3");
  // Replica 1 can't write what it tells replica 0.
  fault = Fault{.where = "full disk"};
  CHECK(run(config, 1, folder.path() / "full") == 1);
  fault.reset();
  CHECK_THAT(errors_of_run,
             ContainsSubstring("replica 0 ") && ContainsSubstring("the disk is full"));
}

TEST_CASE("where a replica is late the error says what is left of the state") {
  for (const auto& [launch, after] : {std::pair("processes", 2), std::pair("threads", 5)}) {
    INFO(launch);
    const TemporaryFolder folder;
    const fs::path output = folder.path() / "run";
    fault = Fault{.where = "late", .after = after};
    const Placement placement{str("timeout_s: 4, launch: ", launch), "", "async: false, "};
    const int status = run(config_of(placement, "every: 3"), 1, output);
    fault.reset();
    CHECK(status == 3);
    CHECK_THAT(errors_of_run, ContainsSubstring("Timeout"));
    const std::string left =
        after == 2 ? "there is no checkpoint"
                   : str("--output ", output.string(), " --resume auto goes on after step 4");
    CHECK(lines_of(errors_of_run).back() ==
          str("the state after step ", after,
              " can't be saved: a replica that has a part of it is late or lost; ", left));
  }
}

TEST_CASE("an error says where the state is, and the final state is saved before it is evaluated") {
  const TemporaryFolder folder;
  const auto failing = [&](const std::string& checkpoint, const Fault& its) {
    const Config config = config_of({"launch: threads", "", ""}, checkpoint);
    const DataSets data = faulty_data();
    const fs::path output = folder.path() / str(its.where, its.after, checkpoint.size());
    for (auto& each : steps_done) each = 0;
    fault = its;
    const std::string message =
        message_of<DataError>([&] { train_in_map(config, data, options_of(output)); });
    fault.reset();
    const std::regex place(R"(\(sample \d+ of the training set; step \d+\))");
    return std::pair(std::regex_replace(message, place, "(its place)"), output);
  };
  const auto [data, output] = failing("every: 0", {.where = "data"});
  CHECK(data ==
        str("replica 1: the fault in data (its place)\nthe state after step 5 is saved: once "
            "the data are mended, --output ",
            output.string(), " --resume auto --resume-with-changes goes on"));
  CHECK(steps_in(output) == std::set<std::int64_t>{4, 5});  // the best, and the last
  // The last evaluation: the state is there already, and what it owes is told.
  const auto [metric, evaluated] = failing("every: 0", {.where = "metric", .after = 12});
  CHECK_THAT(metric, ContainsSubstring("the state after step 12 is saved: "));
  CHECK(steps_in(evaluated).contains(12));
  const CheckpointInfo info = checkpoint_info(checkpoints_of(evaluated) / "latest");
  CHECK(info.step == 12);
  CHECK(info.counts.at(kOwesCounts + kValidationSet) == 1);
  const auto [unsaved, none] = failing("save: none", {.where = "data"});
  CHECK(unsaved == "replica 1: the fault in data (its place)");
  CHECK(!fs::exists(checkpoints_of(none)));
  // In the first step nothing is lost.
  const auto [first, empty] = failing("every: 0", {.where = "data", .after = 0});
  CHECK(first == "replica 1: the fault in data (its place)");
  CHECK(!fs::exists(checkpoints_of(empty)));
}

}  // namespace lockstep
