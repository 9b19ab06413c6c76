#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/types.h>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/hosts/job_on_hosts.h"
#include "tests/hosts/sockets.h"
#include "tests/hosts/test_network.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/occurrences.h"
#include "tests/support/pages.h"
#include "tests/support/settings.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr const char* kPerceptron = R"(
model: {name: mlp, hidden: [32, 9]}
data: {name: fashion_mnist, batch_size: 8}
optimizer: {name: adam, lr: 0.001}
parallel: {threads_per_replica: 1, bucket_mb: 0.05}
trainer: {steps: 6, seed: 0, accumulate: 2, clip_norm: 1.0, log_every: 1, eval_every: 0}
)";

constexpr const char* kConvolutional = R"(
model: {name: cnn, channels: [3, 5], dense: [11]}
data: {name: fashion_mnist, batch_size: 4}
optimizer: {name: adam, lr: 0.001}
parallel: {threads_per_replica: 1, bucket_mb: 0.01}
trainer: {steps: 3, seed: 0, accumulate: 2, clip_norm: 1.0, log_every: 1, eval_every: 0}
)";

// It would not end by itself.
constexpr const char* kLong = R"(
model: {name: linear}
data: {name: pmean_example, batch_size: 4, shuffle: false}
optimizer: {name: sgd, lr: 0.01}
parallel: {threads_per_replica: 1}
trainer: {steps: 1000000000, log_every: 1}
)";

// What runs of one config have in common, wherever their replicas are.
struct Result {
  std::string digest;
  std::vector<nlohmann::json> losses;  // step by step

  bool operator==(const Result&) const = default;
};

Result result_in(const fs::path& output) {
  Result result{.digest = digest_of(output), .losses = {}};
  for (const nlohmann::json& line : read_json_lines(output / "metrics.jsonl")) {
    if (line.contains("loss")) result.losses.push_back(line["loss"]);
  }
  return result;
}

// Of one host with as many replicas.
Result on_one_host(std::size_t replicas, const Flags& flags = {},
                   const std::string& text = kPerceptron) {
  const TemporaryFolder folder;
  const std::string config = folder.write("config.yaml", text);
  require_status(run_program(train_command(Flags{"--config", config, "--replicas", str(replicas),
                                                 "--output", "run"} +
                                           flags),
                             folder.path()),
                 0);
  return result_in(folder.path() / "run");
}

void check_all_well(JobOnHosts& job, const std::vector<Ended>& ended, const Result& expected) {
  INFO(job.all_output());
  for (const Ended& end : ended) REQUIRE(end.status == 0);
  CHECK(result_in(job.output(0, "")) == expected);
}

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

// All hosts refuse the job, and say all of this.
void check_all_refuse(JobOnHosts& job, const Lines& said) {
  const std::vector<Ended> ended = job.run();
  INFO(job.all_output());
  for (const Ended& end : ended) {
    CHECK(end.status == 2);
    for (const std::string& text : said) CHECK_THAT(end.err, ContainsSubstring(text));
  }
}

// Where replicas are: each host's, or an equal share without a list; and how many run at once.
struct Layout {
  std::size_t hosts;
  std::size_t replicas;
  std::vector<int> host_replicas = {};
  Flags flags = {};
};

void check_layout(const Layout& layout, const TestNetwork& network, const Result& expected,
                  const Flags& more) {
  INFO(layout.replicas << " replicas on " << layout.hosts << " hosts ("
                       << join(layout.host_replicas) << ") " << join(layout.flags + more, " "));
  JobOnHosts job(network, kPerceptron, layout.replicas, layout.flags + more);
  for (std::size_t host = 0; host < layout.host_replicas.size(); ++host) {
    job.add(host, {"--host-replicas", str(layout.host_replicas[host])});
  }
  check_all_well(job, job.run(), expected);
  CHECK(network.left_behind() == Lines{});
  // Each host holds whole parameters once.
  const nlohmann::json memory = read_json(job.output(0, "result.json")).at("memory");
  for (const std::string what : {"parameters", "gradients", "optimizer_state"}) {
    CHECK(memory.at("measured").at(what) == memory.at("predicted").at(what));
  }
  // At stage 3 fewer blocks may be gathered at one time than there may be.
  CHECK(memory.at("measured").at("host") <= memory.at("predicted").at("host"));
  if (more != set("parallel.zero_stage=3")) {
    CHECK(memory.at("measured").at("host") == memory.at("predicted").at("host"));
  }
}

// Whether a stranger reaches a port of host 0, which it then tells something.
bool greet(const Descriptor& socket, std::uint16_t port, const std::string& greeting,
           std::chrono::milliseconds timeout) {
  if (!connects_to(socket, TestNetwork::address(0), port, timeout)) return false;
  try {
    send_all(socket, greeting);
  } catch (const std::runtime_error&) {
    // The other end has closed it, as it should.
  }
  return true;
}

// The TCP ports on which anybody listens on a host.
std::vector<std::uint16_t> ports_of(const TestNetwork& network, std::size_t host) {
  constexpr unsigned kListens = 10;  // the state in /proc/self/net/tcp
  const auto look = run_on(network, host, [] {
    std::ifstream table("/proc/self/net/tcp");
    std::cout << table.rdbuf();
    return 0;
  });
  std::vector<std::uint16_t> ports;
  for (const std::string& line : lines_of(look->wait().out)) {
    unsigned port = 0;
    unsigned state = 0;
    const int read = std::sscanf(line.c_str(), "%*d: %*8x:%4x %*8x:%*4x %2x", &port, &state);
    if (read == 2 && state == kListens) ports.push_back(static_cast<std::uint16_t>(port));
  }
  return ports;
}

}  // namespace

TEST_CASE("a job has the same parameters on several hosts as on one, at all stages") {
  const std::vector<Layout> layouts{
      {.hosts = 2, .replicas = 2},
      {.hosts = 2, .replicas = 4},
      {.hosts = 2, .replicas = 6},
      {.hosts = 3, .replicas = 3},
      {.hosts = 3, .replicas = 6},
      {.hosts = 4, .replicas = 4},
      {.hosts = 2, .replicas = 5},  // 3 and 2
      {.hosts = 2, .replicas = 4, .host_replicas = {1, 3}},
      {.hosts = 3, .replicas = 6, .host_replicas = {1, 4, 1}},
      {.hosts = 2, .replicas = 6, .flags = {"--workers", "2"}},
      {.hosts = 2, .replicas = 4, .flags = {"--interface", "eth0"}},
      {.hosts = 2, .replicas = 4, .flags = set("parallel.bucket_mb=auto")},
  };
  Sample sample("layouts on hosts");
  std::map<std::size_t, Result> expected;  // by the number of replicas
  for (const Layout& layout : layouts) {
    if (expected.count(layout.replicas) == 0) {
      expected[layout.replicas] = on_one_host(layout.replicas);
    }
    const TestNetwork network({.hosts = layout.hosts});
    for (const std::string stage : {"0", "1", "2", "3"}) {
      if (!sample.next()) continue;
      check_layout(layout, network, expected[layout.replicas], set("parallel.zero_stage=" + stage));
    }
  }
}

TEST_CASE("a convolutional net has the same parameters on two hosts as on one") {
  Sample sample("a convolutional net on hosts");
  const Result expected = on_one_host(4, {}, kConvolutional);
  const TestNetwork network({.hosts = 2});
  for (const std::string stage : {"0", "1", "2", "3"}) {
    for (const Flags& workers : {Flags{}, Flags{"--workers", "3"}}) {
      if (!sample.next()) continue;
      JobOnHosts job(network, kConvolutional, 4, workers + set("parallel.zero_stage=" + stage));
      check_all_well(job, job.run(), expected);
    }
  }
}

TEST_CASE("the page's commands for several hosts train on two hosts") {
  const TestNetwork network({.hosts = 2});
  const TemporaryFolder shared;
  const fs::path source = LOCKSTEP_SOURCE_DIR;
  const auto replace = [](std::string text, const std::string& what, const std::string& by) {
    const auto at = text.find(what);
    INFO(what << " in " << text);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
  };
  const Page page = read_page("trainers/hosts.md");
  std::vector<std::string> commands;
  for (const PageBlock& block : page.blocks) {
    for (const PageCommand& shown : commands_of(block)) {
      std::string command = replace(shown.words, "./trainers/run.sh", train_command({})[0]);
      command = replace(command, "/shared", shared.path().string());
      command = replace(command, "node0:", TestNetwork::name(0) + ":");
      commands.push_back("cd " + source.string() + " && " + command + " --set trainer.epochs=1");
    }
  }
  REQUIRE(commands.size() == 2);
  // It stands in the text.
  const std::size_t begin = page.text.find("`mkdir") + 1;
  const std::string copy = replace(page.text.substr(begin, page.text.find('`', begin) - begin),
                                   "scp -p node0:", "cp -p " + network.home(0).string() + "/");
  const auto run = [&](std::size_t host, const std::string& command) {
    return ChildProgram(network.command(host, {"/bin/sh", "-c", command}));
  };
  ChildProgram first = run(0, commands[0]);
  REQUIRE(eventually(
      [&] { return fs::exists(network.home(0) / ".config/lockstep/secret") || !first.running(); }));
  require_status(run(1, copy).wait(), 0);
  check_status(run(1, commands[1]).wait(), 0);
  require_status(first.wait(), 0);
  const nlohmann::json result = result_of(shared.path() / "mlp");
  CHECK(result.at("hosts") == 2);
  CHECK(result.at("replicas") == 4);
}

TEST_CASE("a job has the same parameters over slow, far and lossy networks", "[fault]") {
  const Result expected = on_one_host(4);
  for (const TestNetwork::Options& options :
       {TestNetwork::Options{.hosts = 2, .rate_mbit = 100},
        TestNetwork::Options{.hosts = 2, .delay_ms = 5},
        TestNetwork::Options{.hosts = 2, .loss_percent = 2}}) {
    INFO("rate " << options.rate_mbit << " delay " << options.delay_ms << " loss "
                 << options.loss_percent);
    const TestNetwork network(options);
    for (const std::string stage : {"1", "3"}) {
      check_layout({.hosts = 2, .replicas = 4}, network, expected,
                   set("parallel.zero_stage=" + stage));
    }
  }
}

TEST_CASE("a job goes on when a cable was out for a moment", "[fault]") {
  const Flags flags = set("trainer.steps=300");
  const Result expected = on_one_host(2, flags);
  TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 2, flags);
  job.start();
  job.wait_for_steps(5);
  network.unplug(1);
  network.plug(1);
  check_all_well(job, job.wait(), expected);
}

TEST_CASE("launchers meet by names, in whatever order they are started", "[fault]") {
  const Result expected = on_one_host(2);
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 2);
  job.replace("--rendezvous", str(TestNetwork::name(0), ":", JobOnHosts::kPort));
  job.start(1);
  CHECK(
      eventually([&] { return read_text(str("/proc/", job.launcher(1), "/comm")) == "train\n"; }));
  job.start(0);
  check_all_well(job, job.wait(), expected);
}

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
  CHECK_THAT(last_line(ended[0].err),
             ContainsSubstring(" can't be saved: a replica that has a part of it is late or lost; "
                               "there is no checkpoint"));
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
                 ContainsSubstring("has said nothing for 3000 ms: its launcher stands still"));
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

TEST_CASE("launchers with another secret don't meet, and tell nobody theirs", "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 2, set("parallel.timeout_s=3"));
  const std::string other = job.new_secret("other");
  job.replace(1, "--secret-file", other);
  const std::vector<Ended> ended = job.run();
  INFO(job.all_output());
  CHECK(ended[0].status == 3);
  CHECK(ended[1].status != 0);
  CHECK_THAT(ended[1].err, ContainsSubstring("has another secret"));
  CHECK(job.all_output().find(lines_of(read_text(other)).at(0)) == std::string::npos);
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("a host that does not come ends those that wait", "[fault]") {
  const TestNetwork network({.hosts = 3});
  JobOnHosts job(network, kPerceptron, 3, set("parallel.timeout_s=3"));
  job.start(0);
  job.start(1);
  const std::vector<Ended> ended = job.wait();
  INFO(job.all_output());
  for (const std::size_t host : {0, 1}) {
    CHECK(ended[host].status == 3);
    CHECK_THAT(ended[host].err, ContainsSubstring("host 2"));
  }
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("nobody comes to a host 0 that is not there", "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 2, set("parallel.timeout_s=2"));
  job.start(1);
  const std::vector<Ended> ended = job.wait();
  INFO(job.all_output());
  CHECK(ended[1].status == 3);
  CHECK_THAT(ended[1].err, ContainsSubstring(TestNetwork::address(0)));
}

TEST_CASE("two launchers of one node rank are refused", "[fault]") {
  const TestNetwork network({.hosts = 3});
  JobOnHosts job(network, kPerceptron, 3, set("parallel.timeout_s=3"));
  job.replace(2, "--node-rank", "1");
  const std::vector<Ended> ended = job.run();
  INFO(job.all_output());
  for (const Ended& end : ended) CHECK(end.status != 0);
  CHECK_THAT(ended[0].err, ContainsSubstring("node rank 1"));
  CHECK_THAT(ended[0].err, ContainsSubstring(TestNetwork::address(1)));
  CHECK_THAT(ended[0].err, ContainsSubstring(TestNetwork::address(2)));
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("launchers with different configs are refused, and told in what they differ", "[fault]") {
  const TestNetwork network({.hosts = 2});
  const std::vector<std::pair<Flags, std::string>> differences{
      {set("trainer.seed=1"), "trainer.seed"},
      {set("model.hidden=[33,9]"), "model.hidden"},
  };
  for (const auto& [flags, key] : differences) {
    JobOnHosts job(network, kPerceptron, 2);
    job.add(1, flags);
    check_all_refuse(job, {key});
    CHECK(network.left_behind() == Lines{});
  }
  for (const std::string flag : {"--replicas", "--nnodes"}) {
    JobOnHosts job(network, kPerceptron, 3);
    job.replace(1, flag, flag == "--nnodes" ? "3" : "4");
    check_all_refuse(job, {});
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("launchers with other data are refused, and told in what they differ", "[fault]") {
  const TestNetwork network({.hosts = 2});
  const TemporaryFolder folder;
  const fs::path root = "/usr/share/datasets/fashion-mnist";
  for (const std::string what : {"images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"}) {
    fs::create_symlink(root / ("t10k-" + what), folder.path() / ("t10k-" + what));
    fs::create_symlink(root / ("t10k-" + what), folder.path() / ("train-" + what));
  }
  JobOnHosts job(network, kPerceptron, 2);
  job.add(1, set("data.root=" + folder.path().string()));
  check_all_refuse(job, {"the training data's checksum"});
  CHECK_THAT(job.all_output(), !ContainsSubstring("the test data's checksum"));
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("a rendezvous that can't be is an error at once", "[fault]") {
  const TestNetwork network({.hosts = 2});
  const auto stranger = run_on(network, 0, [] {
    const Descriptor listening = new_tcp_socket();
    listen_at(listening, JobOnHosts::kPort);
    std::cout << "listening\n" << std::flush;
    while (true) send_all(accept_one(listening), "220 I am no launcher\r\n");
    return 0;
  });
  REQUIRE(eventually([&] { return !stranger->out().empty() || !stranger->running(); }));

  JobOnHosts in_use(network, kPerceptron, 2, set("parallel.timeout_s=3"));
  std::vector<Ended> ended = in_use.run();
  INFO(in_use.all_output());
  CHECK(ended[0].status != 0);
  CHECK_THAT(ended[0].err, ContainsSubstring("cannot listen on 10.77.0.1:29500"));
  CHECK(ended[1].status != 0);
  CHECK_THAT(ended[1].err, ContainsSubstring("10.77.0.1:29500"));

  JobOnHosts nowhere(network, kPerceptron, 2, set("parallel.timeout_s=3"));
  nowhere.replace("--rendezvous", "nowhere.invalid:29501");
  ended = nowhere.run();
  INFO(nowhere.all_output());
  for (const Ended& end : ended) {
    CHECK(end.status != 0);
    CHECK_THAT(end.err, ContainsSubstring("nowhere.invalid"));
    CHECK(end.seconds < 30);
  }
}

TEST_CASE("flags that can't be are refused before anybody is met") {
  const TestNetwork network({.hosts = 2});
  struct Mistake {
    std::string flag, value, said;
  };
  const std::vector<Mistake> mistakes{
      {"--node-rank", "2", "--node-rank"},
      {"--node-rank", "-1", "--node-rank"},
      {"--nnodes", "0", "--nnodes"},
      {"--replicas", "1", "replica"},  // fewer than hosts
      {"--rendezvous", "10.77.0.1", "10.77.0.1"},
      {"--rendezvous", "10.77.0.1:70000", "70000"},
      {"--secret-file", "/nowhere/secret", "/nowhere/secret"},
      {"--interface", "eth7", "eth7"},
      {"--launch", "threads", "threads"},
      {"--host-replicas", "0", "--host-replicas"},
      {"--host-replicas", "3", "--host-replicas"},
  };
  for (const auto& [flag, value, said] : mistakes) {
    INFO(flag << " " << value);
    JobOnHosts job(network, kPerceptron, 2,
                   {"--interface", "eth0", "--launch", "processes", "--host-replicas", "1"});
    job.replace(0, flag, value);
    job.start(0);
    const std::vector<Ended> ended = job.wait();
    check_status(ended[0], 2);
    CHECK(ended[0].seconds < 5);
    CHECK_THAT(ended[0].err, ContainsSubstring(said));
    CHECK(ended[0].err.find("no such option") == std::string::npos);
  }
}

TEST_CASE("strangers at the rendezvous change nothing", "[fault]") {
  const Flags flags = set("trainer.steps=50");
  const Result expected = on_one_host(2, flags);
  const TestNetwork network({.hosts = 3});
  JobOnHosts job(network, kPerceptron, 2, flags);
  job.replace("--nnodes", "2");
  job.start(0);
  // 200 come before host 1 does, some of which stay; others come all the time from then on.
  const auto strangers = run_on(network, 2, [] {
    const std::vector<std::string> greetings{"", "GET / HTTP/1.1\r\n\r\n", std::string(64, '\0'),
                                             std::string(65536, '\xff'), "L"};
    std::vector<Descriptor> kept;
    for (std::size_t connected = 0;;) {
      Descriptor socket = new_tcp_socket();
      const std::string& greeting = greetings[connected % greetings.size()];
      if (!greet(socket, JobOnHosts::kPort, greeting, 200ms)) {
        ::poll(nullptr, 0, 1);  // nobody listens: the job is past its rendezvous
        continue;
      }
      ++connected;
      if (connected % 2 == 0 && kept.size() < 100) kept.push_back(std::move(socket));
      if (connected == 200) std::cout << "200\n" << std::flush;
    }
    return 0;
  });
  const bool came = eventually([&] { return strangers->out() == "200\n"; });
  INFO(job.all_output() << strangers->err());
  REQUIRE(came);
  job.start(1);
  std::vector<Ended> ended = job.wait();
  ended.pop_back();  // host 2 has no part in it
  check_all_well(job, ended, expected);
}

TEST_CASE("a thousand strangers at the ports of a running job change nothing", "[fault]") {
  const Flags flags = set("trainer.steps=1500 trainer.log_every=10");
  const Result expected = on_one_host(4, flags);
  const TestNetwork network({.hosts = 3});
  JobOnHosts job(network, kPerceptron, 4, flags);
  job.replace("--nnodes", "2");
  job.start(0);
  job.start(1);
  job.wait_for_steps(2);
  const std::vector<std::uint16_t> ports = ports_of(network, 0);
  REQUIRE(!ports.empty());
  const auto strangers = run_on(network, 2, [&ports] {
    std::vector<Descriptor> kept;
    for (std::size_t connected = 0; connected < 1000; ++connected) {
      Descriptor socket = new_tcp_socket();
      const std::uint16_t port = ports[connected % ports.size()];
      const std::string greeting(connected % 3 > 0 ? connected % 3000 : 0, '\xff');
      if (greet(socket, port, greeting, 5s) && kept.size() < 300) kept.push_back(std::move(socket));
    }
    return 0;
  });
  require_status(strangers->wait(), 0);
  REQUIRE(job.running(0));  // or they came too late
  std::vector<Ended> ended = job.wait();
  ended.pop_back();  // host 2 has no part in it
  check_all_well(job, ended, expected);
}

TEST_CASE("two jobs on the same hosts don't disturb each other", "[fault]") {
  const Result expected = on_one_host(4);
  const TestNetwork network({.hosts = 2});
  JobOnHosts first(network, kPerceptron, 4);
  JobOnHosts second(network, kPerceptron, 4);
  second.replace("--rendezvous", str(TestNetwork::address(0), ":29777"));
  first.start();
  check_all_well(second, second.run(), expected);
  check_all_well(first, first.wait(), expected);
}

TEST_CASE("checkpoints need a folder that all hosts share", "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts apart(network, kPerceptron, 2);
  apart.replace("--output", "/dev/shm/run");
  check_all_refuse(apart, {"/dev/shm/run", "all hosts share"});
  JobOnHosts without(network, kPerceptron, 2, set("checkpoint=none"));
  without.replace("--output", "/dev/shm/other");
  for (const Ended& end : without.run()) CHECK(end.status == 0);
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

TEST_CASE("a host with another program is refused", "[fault]") {
  const TestNetwork network({.hosts = 2});
  const TemporaryFolder folder;
  const fs::path other = folder.path() / "train";
  fs::copy_file(train_command({}).at(0), other);
  std::ofstream(other, std::ios::app) << "another build";
  JobOnHosts job(network, kPerceptron, 2);
  job.run_as(1, other);
  check_all_refuse(job, {"the program's checksum is "});
  JobOnHosts mixed(network, kPerceptron, 2, set("parallel.allow_mixed=true"));
  mixed.run_as(1, other);
  check_all_well(mixed, mixed.run(), on_one_host(2));
}

TEST_CASE("a host whose clock is an hour ahead changes nothing", "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 2);
  job.preload(1, HOUR_AHEAD);
  const std::vector<Ended> ended = job.run();
  check_all_well(job, ended, on_one_host(2));
}
