#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/types.h>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/hosts/job_on_hosts.h"
#include "tests/hosts/test_network.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/occurrences.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;

// It would not end by itself.
constexpr const char* kLong = R"(
model: {name: linear}
data: {name: pmean_example, batch_size: 4, shuffle: false}
optimizer: {name: sgd, lr: 0.01}
parallel: {threads_per_replica: 1}
trainer: {steps: 1000000000, log_every: 1}
)";

void check_statuses(const std::vector<Ended>& ended, int status) {
  for (const Ended& end : ended) {
    CHECK(end.status == status);
    CHECK(!end.by_signal);
  }
}

// For tests/hosts.sh, which makes a table of these.
void tell_time(const std::string& fault, std::chrono::steady_clock::time_point since) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - since;
  std::cout << "from fault to end: " << fault << ": " << took.count() << " s" << std::endl;
}

// How a job ends on each host after a fault in the midst of its training.
std::vector<Ended> after_fault(JobOnHosts& job, const std::string& fault,
                               const std::function<void()>& cause, std::chrono::seconds deadline) {
  job.start();
  job.wait_for_steps(3);
  const auto begun = std::chrono::steady_clock::now();
  cause();
  std::vector<Ended> ended = job.wait(deadline);
  tell_time(fault, begun);
  return ended;
}

// The last error, which may have several lines.
std::string last_error(const Ended& end) {
  const std::size_t begin = end.err.rfind("lockstep: error: ");
  return begin == std::string::npos ? "" : end.err.substr(begin);
}

// All hosts end with the same words.
void check_last_lines_alike(const std::vector<Ended>& ended) {
  CHECK(!last_line(ended[0].err).empty());
  for (const Ended& end : ended) CHECK(last_line(end.err) == last_line(ended[0].err));
}

}  // namespace

TEST_CASE("a replica killed on one host ends the job on all, which name it", "[fault]") {
  const TestNetwork network({.hosts = 3});
  for (const std::size_t host : {0, 1, 2}) {
    JobOnHosts job(network, kLong, 6);
    const auto kill_one = [&] {
      const std::vector<pid_t> replicas = job.replicas(host);
      REQUIRE(replicas.size() == 2);
      REQUIRE(::kill(replicas[1], SIGKILL) == 0);
    };
    const std::vector<Ended> ended = after_fault(job, "a replica killed", kill_one, 10s);
    INFO(job.all_output());
    check_statuses(ended, 3);
    check_last_lines_alike(ended);
    CHECK_THAT(last_line(ended[0].err), ContainsSubstring(str("replica ", 2 * host + 1)));
    CHECK_THAT(last_line(ended[0].err), ContainsSubstring("killed by signal 9 (Killed)"));
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("Ctrl-C and SIGTERM on one host end the job on all", "[fault]") {
  const TestNetwork network({.hosts = 2});
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const std::size_t host : {0, 1}) {
      JobOnHosts job(network, kLong, 4);
      const std::vector<Ended> ended = after_fault(
          job, signal == SIGINT ? "Ctrl-C" : "SIGTERM",
          [&] { REQUIRE(::kill(job.launcher(host), signal) == 0); }, 10s);
      INFO("signal " << signal << " on host " << host << "\n" << job.all_output());
      check_statuses(ended, 128 + signal);
      CHECK(fs::exists(job.output(0, "checkpoints/latest/manifest.json")));
      CHECK(network.left_behind() == Lines{});
    }
  }
}

TEST_CASE("SIGTERM on all hosts at about one time ends the job after a checkpoint", "[fault]") {
  const TestNetwork network({.hosts = 3});
  for (const int apart_ms : {0, 5, 20}) {
    INFO(apart_ms << " ms apart");
    JobOnHosts job(network, kLong, 3);
    job.start();
    job.wait_for_steps(1);
    for (const std::size_t host : {2, 0, 1}) {
      REQUIRE(::kill(job.launcher(host), SIGTERM) == 0);
      ::poll(nullptr, 0, apart_ms);
    }
    const std::vector<Ended> ended = job.wait(10s);
    INFO(job.all_output());
    check_statuses(ended, 143);
    CHECK(fs::exists(job.output(0, "checkpoints/latest/manifest.json")));
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("a launcher killed on one host ends the job on all others", "[fault]") {
  const TestNetwork network({.hosts = 3});
  for (const std::size_t host : {0, 1}) {
    JobOnHosts job(network, kLong, 3);
    const std::vector<Ended> ended = after_fault(
        job, "a launcher killed", [&] { REQUIRE(::kill(job.launcher(host), SIGKILL) == 0); }, 10s);
    INFO(job.all_output());
    for (std::size_t other = 0; other < 3; ++other) {
      CHECK(ended[other].status == (other == host ? 128 + SIGKILL : 3));
    }
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("a job starts again on the hosts that are left, with the same replicas", "[fault]") {
  const TestNetwork network({.hosts = 3});
  const TemporaryFolder shared;
  std::map<std::string, Result> results;
  for (const std::string name : {"all", "left"}) {
    JobOnHosts job(network, kPerceptron, 4,
                   set("trainer.steps=60 checkpoint.every=5 parallel.timeout_s=10") +
                       Flags{"--max-restarts", "2"});
    job.replace("--output", shared.path() / name);
    job.start();
    if (name == "left") {
      const fs::path metrics = shared.path() / name / "metrics.jsonl";
      REQUIRE(eventually(
          [&] { return fs::exists(metrics) && lines_of(read_text(metrics)).size() > 8; }));
      REQUIRE(::kill(job.launcher(1), SIGKILL) == 0);
    }
    const std::vector<Ended> ended = job.wait();
    INFO(job.all_output());
    CHECK(ended[0].status == 0);
    CHECK(ended[2].status == 0);
    results.emplace(name, result_in(shared.path() / name));
    if (name == "all") continue;
    CHECK(ended[1].status == 128 + SIGKILL);
    CHECK_THAT(ended[0].err,
               ContainsSubstring("host 1 (10.77.0.2") &&
                   ContainsSubstring("goes on without host 1: 4 replicas on 3 workers"));
  }
  CHECK(results.at("left").digest == results.at("all").digest);
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("a job starts again on host 0 alone when the other host can't be reached", "[fault]") {
  TestNetwork network({.hosts = 2});
  const TemporaryFolder shared;
  JobOnHosts job(network, kPerceptron, 2,
                 set("trainer.steps=60 checkpoint.every=5 parallel.timeout_s=3") +
                     Flags{"--max-restarts", "1"});
  job.replace("--output", shared.path() / "run");
  job.start();
  const fs::path metrics = shared.path() / "run/metrics.jsonl";
  REQUIRE(
      eventually([&] { return fs::exists(metrics) && lines_of(read_text(metrics)).size() > 8; }));
  network.unplug(1);
  const std::vector<Ended> ended = job.wait();
  INFO(job.all_output());
  CHECK(ended[0].status == 0);
  CHECK(ended[1].status == 3);
  CHECK_THAT(ended[0].err, ContainsSubstring("goes on without host 1: 2 replicas on 1 worker"));
  CHECK_THAT(ended[1].err, ContainsSubstring("host 0"));
  CHECK(result_in(shared.path() / "run").digest ==
        on_one_host(2, set("trainer.steps=60 checkpoint.every=5")).digest);
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("a replica that stands still ends the job when its time is over", "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kLong, 4, set("parallel.timeout_s=3"));
  const std::vector<Ended> ended = after_fault(
      job, "a replica stopped, timeout 3 s",
      [&] { REQUIRE(::kill(job.replicas(1).at(1), SIGSTOP) == 0); }, 20s);
  INFO(job.all_output());
  check_statuses(ended, 3);
  check_last_lines_alike(ended);
  CHECK_THAT(last_error(ended[0]),
             ContainsSubstring("replica 3 on host 1 has not arrived: it is stopped by a signal") ||
                 ContainsSubstring(
                     "replica 3 on host 1 has arrived, but its process is stopped by a signal"));
  // On a busy machine the stopped one's launcher may end the job before the others' time is over.
  CHECK_THAT(last_line(ended[0].err),
             ContainsSubstring(" can't be saved: a replica that has a part of it is late or lost; "
                               "there is no checkpoint") ||
                 ContainsSubstring(" has been stopped by a signal for longer than 3000 ms"));
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("a launcher that stands still ends the job on all others", "[fault]") {
  const TestNetwork network({.hosts = 3});
  for (const std::size_t host : {0, 2}) {
    JobOnHosts job(network, kLong, 6, set("parallel.timeout_s=3 optimizer.lr=1e-6"));
    job.start();
    job.wait_for_steps(3);
    const auto begun = std::chrono::steady_clock::now();
    REQUIRE(::kill(job.launcher(host), SIGSTOP) == 0);
    const bool others_end =
        eventually([&] { return !job.running(1) && !job.running(host == 0 ? 2 : 0); });
    tell_time("a launcher stopped, timeout 3 s", begun);
    REQUIRE(::kill(job.launcher(host), SIGCONT) == 0);
    const std::vector<Ended> ended = job.wait(20s);
    INFO(job.all_output());
    CHECK(others_end);
    check_statuses(ended, 3);
    for (const std::size_t other : {std::size_t{1}, host == 0 ? std::size_t{2} : std::size_t{0}}) {
      CHECK_THAT(last_line(ended[other].err), ContainsSubstring(str("host ", host, " (")));
      CHECK_THAT(last_line(ended[other].err),
                 ContainsSubstring("has said nothing for 3 s: its launcher stands still, or the "
                                   "network between them is cut"));
    }
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("a replica that is stopped for a while is told of on every host, and the job goes on",
          "[fault]") {
  const Flags flags = set("trainer.steps=40");
  const Result expected = on_one_host(4, flags);
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 4,
                 flags + set("parallel.stall_warn_s=0.5 parallel.timeout_s=60"));
  job.start();
  job.wait_for_steps(3);
  const pid_t stopped = job.replicas(1).at(1);
  REQUIRE(::kill(stopped, SIGSTOP) == 0);
  // The first warning and the second, on both hosts.
  REQUIRE(eventually([&] { return count(job.all_output(), "stalled for ") >= 4; }));
  REQUIRE(::kill(stopped, SIGCONT) == 0);
  const std::vector<Ended> ended = job.wait();
  check_all_well(job, ended, expected);
  INFO(job.all_output());
  CHECK_THAT(read_text(job.output(0, "events.jsonl")),
             ContainsSubstring("\"event\":\"stalled\",\"text\":\"stalled for "));
  CHECK_FALSE(fs::exists(job.output(1, "events.jsonl")));
  for (const Ended& each : ended) {
    CHECK_THAT(each.err, ContainsSubstring("warning: stalled for ") &&
                             ContainsSubstring(" waits in ") && ContainsSubstring(" (after step "));
    CHECK_THAT(
        each.err,
        ContainsSubstring("replica 3 on host 1 has not arrived: it is stopped by a signal") ||
            ContainsSubstring("replica 3 on host 1 has arrived, but its process is stopped"));
  }
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("a job whose hosts are all suspended goes on, whichever wakes first", "[fault]") {
  const Flags flags = set("trainer.steps=400");
  const Result expected = on_one_host(4, flags);
  const TestNetwork network({.hosts = 2});
  for (const std::size_t first : {0, 1}) {
    JobOnHosts job(network, kPerceptron, 4, flags + set("parallel.timeout_s=1"));
    job.start();
    job.wait_for_steps(3);
    std::vector<std::vector<pid_t>> all(2);
    for (const std::size_t host : {0, 1}) {
      all[host] = job.replicas(host);
      all[host].push_back(job.launcher(host));
    }
    const auto send = [&](std::size_t host, int signal) {
      for (const pid_t pid : all[host]) REQUIRE(::kill(pid, signal) == 0);
    };
    for (const std::size_t host : {0, 1}) send(host, SIGSTOP);
    ::poll(nullptr, 0, 2500);  // what is to pass unseen
    send(first, SIGCONT);
    ::poll(nullptr, 0, 400);
    send(1 - first, SIGCONT);
    check_all_well(job, job.wait(), expected);
  }
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("hosts that lose each other end, and name whom they have lost", "[fault]") {
  for (const std::size_t host : {0, 1}) {
    TestNetwork network({.hosts = 2});
    JobOnHosts job(network, kLong, 4, set("parallel.timeout_s=3"));
    const std::vector<Ended> ended = after_fault(
        job, "a host unplugged, timeout 3 s", [&] { network.unplug(host); }, 20s);
    INFO(job.all_output());
    check_statuses(ended, 3);
    CHECK_THAT(last_error(ended[0]), ContainsSubstring("host 1"));
    CHECK_THAT(last_error(ended[1]), ContainsSubstring("host 0"));
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("an output folder that is full or read-only on host 0 is an error on all hosts",
          "[fault]") {
  const TestNetwork network({.hosts = 2});
  const TemporaryFolder outside;
  struct Case {
    std::string options, said;
  };
  for (const auto& [options, said] :
       {Case{"size=16k", "No space left on device"}, Case{"ro,size=1m", "Read-only file system"}}) {
    const fs::path folder = outside.path() / options;
    fs::create_directory(folder);
    const Ended mounted = run_program(
        network.command(0, {"/bin/mount", "-t", "tmpfs", "-o", options, "none", folder.string()}));
    REQUIRE(mounted.status == 0);
    JobOnHosts job(network, kPerceptron, 2, set("checkpoint=none trainer.steps=2000"));
    job.replace("--output", folder / "run");
    const std::vector<Ended> ended = job.run();
    INFO(job.all_output());
    for (const Ended& end : ended) {
      CHECK(end.status != 0);
      CHECK(!end.by_signal);
    }
    check_last_lines_alike(ended);
    CHECK_THAT(last_line(ended[1].err),
               ContainsSubstring(folder.string()) && ContainsSubstring(said));
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("a replica's error on one host leaves the state after the last step of all", "[fault]") {
  const TestNetwork network({.hosts = 2});
  // A picture of 2 times 2, again and again, in two classes. Of so many the hosts compare every
  // second one at the start, and replica 1 has the eighth in step 2.
  const unsigned char picture[] =
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x02\x08\0\0\0\0\x57\xdd\x52\xf8\0\0\0\x0e"
      "IDAT\x78\x9c\x63\x10\xf8\xc0\xd0\xe0\0\0\x05\x56\x01\xc1\x3d\x85\x90\xce\0\0\0\0IEND\xae\x42"
      "\x60\x82";
  const std::string png(picture, picture + sizeof picture - 1);
  const TemporaryFolder data;
  const std::string whole_file = data.write("whole.png", png);
  const auto file = [&](const std::string& name, int number) {
    return data.path() / "train" / name / str(1000 + number, ".png");
  };
  for (const std::string name : {"a", "b"}) {
    fs::create_directories(data.path() / "train" / name);
    for (int i = 0; i < 1001; ++i) fs::create_hard_link(whole_file, file(name, i));
  }
  const std::string config =
      str("model: {name: resnet, depth: 8, width: 8}\n"
          "data: {name: image_folder, root: ",
          data.path().string(),
          ", height: 8, width: 8, channels: 1, batch_size: 2, shuffle: false}\n"
          "optimizer: {name: adam, lr: 0.01}\n"
          "parallel: {threads_per_replica: 1, bucket_mb: 0.01, overlap: \"on\"}\n"
          "trainer: {steps: 6, log_every: 1, ema_decay: 0.9}\n");
  for (const std::string flags :
       {"parallel.zero_stage=0 parallel.compression=bf16", "parallel.zero_stage=2",
        "parallel.zero_stage=3 parallel.compression=bf16"}) {
    INFO(flags);
    fs::remove(file("a", 7));
    fs::create_hard_link(whole_file, file("a", 7));
    JobOnHosts whole(network, config, 2, set(flags + " trainer.steps=1"));
    for (const Ended& end : whole.run()) REQUIRE(end.status == 0);
    fs::remove(file("a", 7));
    data.write("train/a/1007.png", png.substr(0, 50));
    JobOnHosts job(network, config, 2, set(flags));
    const std::vector<Ended> ended = job.run();
    INFO(job.all_output());
    check_statuses(ended, 2);
    check_last_lines_alike(ended);
    CHECK_THAT(ended[1].err, ContainsSubstring("train/a/1007.png"));
    CHECK_THAT(last_line(ended[1].err),
               ContainsSubstring("the state after step 1 is saved: once the data are mended, "));
    for (const std::string shard : {"shard-00000-of-00002", "shard-00001-of-00002"}) {
      const std::string part = "checkpoints/step-00000001/" + shard + ".safetensors";
      const std::string saved = read_text(job.output(0, part));
      CHECK(!saved.empty());
      CHECK(saved == read_text(whole.output(0, part)));
    }
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("host 0 that dies while hosts meet is an error of those that have come", "[fault]") {
  const TestNetwork network({.hosts = 3});
  JobOnHosts job(network, kPerceptron, 3, set("parallel.timeout_s=30"));
  job.start(0);
  job.start(1);
  // Before, host 1 would go on trying to reach a host 0 that may come yet.
  REQUIRE(eventually([&] {
    return job.all_output().find("host 1 of 3 has reached host 0") != std::string::npos;
  }));
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(::kill(job.launcher(0), SIGKILL) == 0);
  const std::vector<Ended> ended = job.wait(10s);
  tell_time("the rendezvous dies", begun);
  INFO(job.all_output());
  CHECK(ended[1].status == 3);
  CHECK_THAT(last_line(ended[1].err), ContainsSubstring("10.77.0.1:29500"));
  CHECK(network.left_behind() == Lines{});
}
