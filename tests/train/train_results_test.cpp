#include <algorithm>
#include <map>
#include <regex>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/settings.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// The example by hand. M = 4n samples x = 0, 1, …, M-1 with y = 2x + 0.5, and w = 1, b = 0: the
// residual w*x + b - y is -(x + 0.5). So
//   loss   = mean((x + 0.5)^2)             = mean(x^2) + mean(x) + 0.25
//   dL/dw  = mean(2 * -(x + 0.5) * x)      = -2 (mean(x^2) + mean(x) / 2)
//   dL/db  = mean(2 * -(x + 0.5))          = -2 (mean(x) + 0.5)
// with mean(x) = (M-1)/2 and mean(x^2) = (M-1)(2M-1)/6; one step of 0.01 goes against them.
struct ByHand {
  explicit ByHand(int replicas) {
    const double m = 4.0 * replicas;
    const double mean_x = (m - 1) / 2;
    const double mean_xx = (m - 1) * (2 * m - 1) / 6;
    loss = mean_xx + mean_x + 0.25;
    w = 1 + 0.02 * (mean_xx + mean_x / 2);
    b = 0.02 * (mean_x + 0.5);
  }
  double loss, w, b;
};

// Two roundings of float32.
auto nearly(double value) {
  return Approx(value).epsilon(1.2e-7).margin(0);
}

// What the launcher says of one of them.
std::string as_one(const std::string& launch) {
  return launch == "threads" ? "a thread" : "a process";
}

Flags mlp(int replicas) {
  return Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--replicas", str(replicas)} +
         set("model.hidden=[64] optimizer.lr=0.001 trainer.steps=30 trainer.log_every=10 "
             "trainer.clip_norm=0.5");
}

}  // namespace

TEST_CASE("the pmean example ends where it must, in processes as in threads") {
  const std::map<int, std::pair<double, double>> known{
      {1, {1.085, 0.04}}, {2, {1.385, 0.08}}, {4, {2.625, 0.16}}, {8, {7.665, 0.32}}};
  for (const int n : {1, 2, 3, 4, 5, 8}) {
    const TemporaryFolder folder;
    const auto command = [&](const std::string& launch) {
      return training(folder.path(), {"--config", config_file("pmean_linear.yaml"), "--replicas",
                                      std::to_string(n), "--launch", launch, "--output", launch});
    };
    ChildProgram processes(command("processes"));
    ChildProgram threads(command("threads"));
    const std::map<std::string, Ended> ended{{"processes", processes.wait()},
                                             {"threads", threads.wait()}};
    for (const auto& [launch, end] : ended) {
      INFO(n << " " << launch << "\n" << end.out << end.err);
      REQUIRE(end.status == 0);
      const auto result = result_of(folder.path() / launch);
      const double w = result["parameters"]["w"];
      const double b = result["parameters"]["b"];
      const ByHand expected(n);
      CHECK(w == nearly(expected.w));
      CHECK(b == nearly(expected.b));
      CHECK(result["loss"].get<double>() == nearly(expected.loss));
      if (known.count(n) > 0) CHECK(std::pair(w, b) == known.at(n));

      auto lines = lines_of(end.out);
      REQUIRE(lines.size() == 7);
      const std::regex progress(
          R"(step 1/1  epoch 1  loss [0-9.]+  lr 0.01  [0-9.e+]+ samples/s  ([0-9]+% waiting( for replica [0-9]+)?  )?[0-9.]+ MiB  0:00 left)");
      CHECK(std::regex_match(lines[1], progress));
      lines.erase(lines.begin() + 1);
      CHECK(lines[3].rfind("memory a replica:    parameters ", 0) == 0);
      CHECK(lines[4].rfind("memory of the host:  ", 0) == 0);
      lines.erase(lines.begin() + 3, lines.begin() + 5);
      CHECK(lines == std::vector<std::string>{
                         "original parameters: w = 1, b = 0",
                         str("updated parameters:  w = ", w, ", b = ", b),
                         "parameters_sha256:   " + result["parameters_sha256"].get<std::string>(),
                         "results in           " + launch});
      CHECK_THAT(end.err, Catch::Matchers::StartsWith(str(
                              "lockstep: data: train ", 4 * n, " samples\n",
                              "lockstep: data: regression of 1 value; inputs float32 (1)\n",
                              "lockstep: data: 1 step an epoch, of ", 4 * n, " samples\nlockstep: ",
                              n == 1 ? str("1 replica as ", as_one(launch))
                                     : str(n, " replicas as ", launch),
                              ", ")));
      CHECK(lines_of(end.err).size() == 4);
      CHECK_THAT(end.err, ContainsSubstring("LibTorch "));
      CHECK(result["launch"] == launch);
      CHECK(result["replicas"] == n);
      CHECK(entries(folder.path() / launch) == 7);
    }
    CHECK(digest_of(folder.path() / "processes") == digest_of(folder.path() / "threads"));
    if (n != 2) continue;
    const auto runs =
        nlohmann::json::parse(must_train(folder.path(), {"runs", ".", "--format", "json"}).out);
    CHECK(runs.size() == 2);
    for (const auto& run : runs) {
      CHECK(run["status"] == "ended");
      CHECK(run["figures"]["loss"]["last"] == result_of(folder.path() / run["run"])["loss"]);
      CHECK(run["parameters_sha256"] == digest_of(folder.path() / "threads"));
    }
    const Flags compare{"compare", "--format", "json", "threads"};
    const auto json =
        nlohmann::json::parse(must_train(folder.path(), compare + Flags{"processes"}).out);
    CHECK(json["differences"] == nlohmann::json{{"parallel.launch", {"threads", "processes"}}});
    CHECK(json["same_figures"] == true);
    CHECK(json["same_parameters"] == true);
    must_train(folder.path(), {"--config", "threads/config.yaml", "--output", "again", "--quiet"});
    CHECK_THAT(must_train(folder.path(), {"compare", "threads", "again", "--to", "c.html"}).out,
               ContainsSubstring("\n\nEqual but for time: "));
    CHECK_THAT(read_text(folder.path() / "c.html"),
               ContainsSubstring(R"({"name":"threads","step":[1],)"));
  }
}

#ifdef __x86_64__
TEST_CASE("OpenBLAS's kernels are named, and warned of where the CPU has better ones") {
  const auto said_with = [](const std::string& core) {
    const TemporaryFolder folder;
    ChildProgram program(Flags{"/usr/bin/env", "OPENBLAS_CORETYPE=" + core} +
                             train_command({"--config", config_file("pmean_linear.yaml")}),
                         folder.path());
    CHECK(program.wait().status == 0);
    return program.err();
  };
  const std::string old = said_with("Prescott");
  const bool is_old = old.find("Prescott)") != std::string::npos;
  // Elsewhere the BLAS, or the CPU, is another.
  if (is_old && __builtin_cpu_supports("avx2")) {
    const bool has_avx512 = __builtin_cpu_supports("avx512bw");
    CHECK_THAT(old, ContainsSubstring("computes as for an old CPU, Prescott, and several times "
                                      "slower than it could: set OPENBLAS_CORETYPE=") &&
                        ContainsSubstring(has_avx512 ? "=SkylakeX " : "=Haswell "));
    CHECK_THAT(said_with("Haswell"),
               ContainsSubstring("Haswell)") && !ContainsSubstring("old CPU"));
  } else {
    CHECK_THAT(old, !ContainsSubstring("old CPU"));
  }
}
#endif

TEST_CASE("an mlp has the same parameters in processes, in threads, over Gloo and again") {
  std::vector<std::string> digests;
  for (const Flags& optimizer :
       {Flags{}, set("optimizer.name=sgd optimizer.lr=0.05 optimizer.momentum=0.9")}) {
    const TemporaryFolder folder;
    for (const std::string run : {"processes", "threads", "gloo", "again"}) {
      if (run == "again" && !optimizer.empty()) continue;
      INFO(run);
      must_train(folder.path(),
                 mlp(4) + optimizer +
                     Flags{"--launch", run == "threads" ? run : "processes", "--output", run} +
                     (run == "gloo" ? set("parallel.backend=gloo") : Flags{}));
      CHECK(digest_of(folder.path() / run) == digest_of(folder.path() / "processes"));
      CHECK(digest_of(folder.path() / run).size() == 64);
      const auto result = result_of(folder.path() / run);
      CHECK(result["eval"]["accuracy"].get<double>() > 0.6);
      CHECK(result.count("parameters") == 0);
    }
    digests.push_back(digest_of(folder.path() / "processes"));
  }
  CHECK(digests[0] != digests[1]);
}

TEST_CASE("a job has the same parameters on fewer workers than replicas") {
  const Flags linear = Flags{"--config", config_file("pmean_linear.yaml"), "--replicas", "4"} +
                       set("trainer.steps=5");
  Sample sample("fewer workers");
  for (const bool is_mlp : {false, true}) {
    const Flags model = is_mlp ? mlp(4) : linear;
    const TemporaryFolder folder;
    must_train(folder.path(), model + Flags{"--output", "whole"});
    const std::vector<int> fewer = is_mlp ? std::vector<int>{3, 1} : std::vector<int>{4, 3, 2, 1};
    for (const int workers : fewer) {
      for (const std::string launch : {"processes", "threads"}) {
        for (const std::string backend : {"auto", "gloo"}) {
          if (!sample.next()) continue;
          const std::string name = str(workers, launch, backend);
          INFO(name);
          const Ended end = must_train(
              folder.path(),
              model + set("parallel.backend=" + backend) +
                  Flags{"--workers", str(workers), "--launch", launch, "--output", name});
          CHECK(digest_of(folder.path() / name) == digest_of(folder.path() / "whole"));
          CHECK(result_of(folder.path() / name)["workers"] == workers);
          const std::string how = workers == 4   ? " as " + launch
                                  : workers == 1 ? str(" on 1 worker (", as_one(launch), ")")
                                                 : str(" on ", workers, " workers (", launch, ")");
          CHECK_THAT(end.err, ContainsSubstring("lockstep: 4 replicas" + how + ", "));
        }
      }
    }
  }
}

TEST_CASE("a cnn learns, with the same parameters in processes and in threads") {
  const TemporaryFolder folder;
  for (const std::string launch : {"processes", "threads"}) {
    INFO(launch);
    must_train(folder.path(), Flags{"--config", config_file("fashion_mnist_cnn.yaml"), "--launch",
                                    launch, "--output", launch} +
                                  set("model.channels=[8,16] model.dense=[32] trainer.steps=60"));
    CHECK(digest_of(folder.path() / launch) == digest_of(folder.path() / "processes"));
    CHECK(result_of(folder.path() / launch)["eval"]["accuracy"] > 0.6);
  }
}

TEST_CASE("the output folder's files have what is documented") {
  const TemporaryFolder folder;
  const Flags flags = mlp(2) + Flags{"--output", "run"} + set("trainer.eval_every=20");
  must_train(folder.path(), flags);
  const auto run = folder.path() / "run";
  CHECK(entries(run) == 8);

  const auto result = result_of(run);
  CHECK(fields(result) == std::vector<std::string>{"backend", "blas", "command", "cores", "cpu",
                                                   "eval", "launch", "libtorch", "lockstep", "loss",
                                                   "memory", "parameters_sha256", "replicas",
                                                   "steps", "test", "threads_per_replica",
                                                   "workers", "zero_stage"});
  CHECK(result["steps"] == 30);
  CHECK(result["replicas"] == 2);
  CHECK(result["zero_stage"] == 0);
  CHECK(fields(result["eval"]) == std::vector<std::string>{"accuracy", "loss"});
  CHECK(result["threads_per_replica"].get<int>() >= 1);
  CHECK(result["workers"] == 2);
  CHECK(result["backend"] == "shared_memory");

  double elapsed_s = 0;
  std::vector<std::pair<int, bool>> steps;  // and whether the line is an evaluation's
  double time = 0;
  for (auto line : read_json_lines(run / "metrics.jsonl")) {
    const bool evaluation = line.count("eval_loss") > 0;
    steps.emplace_back(line.at("step"), evaluation);
    CHECK(line.at("samples") == 2 * 64 * line.at("step").get<int>());
    CHECK(line.at("elapsed_s").get<double>() > elapsed_s);
    elapsed_s = line.at("elapsed_s");
    CHECK(line.at("time").get<double>() > std::max(time, 1.7e9));
    time = line.at("time");
    if (evaluation) {
      CHECK(fields(line) == std::vector<std::string>{"elapsed_s", "eval_accuracy", "eval_loss",
                                                     "samples", "step", "test_accuracy",
                                                     "test_loss", "time", "weights"});
    } else {
      // Where a step's time went; communication is a part of it, and waiting one of that. What is
      // between steps is no work of theirs.
      double sum_s = 0;
      for (const auto& [part, seconds] : line.at("parts").items()) {
        if (part != "evaluation" && part != "checkpoint") sum_s += seconds.get<double>();
      }
      CHECK((0 < sum_s && sum_s * 10 < 1.5 * elapsed_s));
      CHECK(line["parts"].contains("backward"));
      CHECK(line["waiting_s"] <= line["parts"]["communication"]);
      REQUIRE(fields(line["replica_own_s"]) == std::vector<std::string>{"0", "1"});
      const double own_s =
          line["replica_own_s"]["0"].get<double>() + line["replica_own_s"]["1"].get<double>();
      CHECK(own_s / 2 == Approx(sum_s - line["parts"]["communication"].get<double>()));
      line.erase("part_of_peak");
      for (const char* slow : {"slow_replica", "slow_replica_s", "slow_replica_share"})
        line.erase(slow);
      // Three products for each of the forward's, two FLOPs for a multiply-add: 784 x 64 x 10.
      CHECK(line["gflop_per_s"].get<double>() / line["samples_per_s"].get<double>() ==
            Approx(6e-9 * (784 * 64 + 64 * 10)));
      CHECK(fields(line) ==
            std::vector<std::string>{"elapsed_s", "epoch", "gflop_per_s", "gradient_norm",
                                     "hidden_communication_s", "loss", "lr", "memory", "parts",
                                     "replica_own_s", "replica_waiting_s", "samples",
                                     "samples_per_s", "step", "time", "waiting_s"});
      CHECK(line["memory"].get<std::int64_t>() > 1 << 20);
      CHECK(line["epoch"] == 1);
      CHECK(line["lr"] < 0.001);
      CHECK(line["samples_per_s"].get<double>() > 0);
      CHECK(line["loss"].get<double>() > 0);
    }
  }
  CHECK(steps == std::vector<std::pair<int, bool>>{
                     {10, false}, {20, false}, {20, true}, {30, false}, {30, true}});

  const std::string config = read_text(run / "config.yaml");
  const auto printed = [&](const Flags& with) {
    const Ended print = train(folder.path(), with + Flags{"--print-config"});
    CHECK(print.status == 0);
    CHECK(print.err.empty());
    return print.out;
  };
  CHECK(printed({"--config", "run/config.yaml"}) == config);
  CHECK(printed(flags) == config);
}

TEST_CASE(
    "--quiet prints nothing; without --output each run gets a folder of its own under runs/") {
  const TemporaryFolder folder;
  for (const std::ptrdiff_t runs : {1, 2}) {
    const Ended end = train(folder.path(), {"--config", config_file("pmean_linear.yaml"),
                                            "--replicas", "2", "--quiet"});
    CHECK(end.status == 0);
    CHECK(end.out.empty());
    CHECK(end.err.empty());
    CHECK(entries(folder.path() / "runs") == runs);
  }
  for (const auto& run : std::filesystem::directory_iterator(folder.path() / "runs")) {
    CHECK(run.path().filename().string().rfind("pmean_linear-", 0) == 0);
    CHECK(result_of(run.path())["steps"] == 1);
  }
}

TEST_CASE("a run that diverges says so and ends with status 1") {
  for (const std::string launch : {"processes", "threads"}) {
    const TemporaryFolder folder;
    const Ended end = train(
        folder.path(), {"--config", config_file("pmean_linear.yaml"), "--set", "optimizer.lr=1e30",
                        "--set", "trainer.steps=100", "--launch", launch, "--output", "run"});
    check_status(end, 1);
    const std::vector<std::string> lines = lines_of(end.err);
    REQUIRE(lines.size() >= 2);
    CHECK(lines.back() == "the state after step 1 is saved: --output run --resume auto goes on");
    const auto listed =
        nlohmann::json::parse(must_train(folder.path(), {"runs", "run", "--format", "json"}).out);
    CHECK(listed[0]["status"] == "failed");
    CHECK_THAT(listed[0]["failure"].get<std::string>(), ContainsSubstring("the loss is "));
    CHECK(std::regex_search(
        lines[lines.size() - 2],
        std::regex(
            "^lockstep: error: .*replica [0-3].*: the loss is not finite at step 2; training "
            "has diverged: try a smaller learning rate or clipping$")));
    CHECK(!std::filesystem::exists(folder.path() / "run/result.json"));
  }
}
