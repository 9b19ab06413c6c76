#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include "framework/base/text.h"
#include "framework/telemetry/trace_file.h"
#include "framework/timeline/trace.h"
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

constexpr const char* kConvolutional = R"(
model: {name: cnn, channels: [3, 5], dense: [11]}
data: {name: fashion_mnist, batch_size: 4}
optimizer: {name: adam, lr: 0.001}
parallel: {threads_per_replica: 1, bucket_mb: 0.01}
trainer: {steps: 3, seed: 0, accumulate: 2, clip_norm: 1.0, log_every: 1, eval_every: 0}
)";

// Where replicas are: each host's, or an equal share without a list; and how many run at once.
struct Layout {
  std::size_t hosts;
  std::size_t replicas;
  std::vector<int> host_replicas = {};
  Flags flags = {};
};

// Of steps 2 and 3, from all hosts' replicas, on one clock.
void check_trace(const JobOnHosts& job, const Layout& layout) {
  const timeline::Trace trace = read_trace(job.output(0, "trace.json"));
  CHECK(trace.first == 2);
  REQUIRE(trace.hosts.size() == layout.hosts);
  std::map<int, std::uint64_t> begins;  // of step 2, by replica
  for (const timeline::Trace::Host& host : trace.hosts) {
    CHECK((host.error > 0) == (&host != &trace.hosts[0]));
    CHECK(host.error < 1'000'000'000);
    for (const timeline::ReplicaRecording& recording : host.replicas) {
      for (const timeline::Recorder::Recording& track : recording.tracks) {
        for (const timeline::Recorder::Span& span : track.spans) {
          if (span.kind == timeline::SpanKind::step && span.id == 2)
            begins[recording.replica] = span.begin;
        }
      }
    }
  }
  CHECK(begins.size() == layout.replicas);
}

void check_layout(const Layout& layout, const TestNetwork& network, const Result& expected,
                  const Flags& more) {
  INFO(layout.replicas << " replicas on " << layout.hosts << " hosts ("
                       << join(layout.host_replicas) << ") " << join(layout.flags + more, " "));
  JobOnHosts job(network, kPerceptron, layout.replicas,
                 layout.flags + more + set("telemetry.trace=[2,3]"));
  for (std::size_t host = 0; host < layout.host_replicas.size(); ++host) {
    job.add(host, {"--host-replicas", str(layout.host_replicas[host])});
  }
  check_all_well(job, job.run(), expected);
  CHECK(network.left_behind() == Lines{});
  check_trace(job, layout);
  nlohmann::json logged;  // the last line of a step
  for (const nlohmann::json& line : read_json_lines(job.output(0, "metrics.jsonl"))) {
    if (line.contains("lr")) logged = line;
  }
  for (const char* field : {"replica_own_s", "replica_waiting_s"}) {
    CHECK(logged.at(field).size() == layout.replicas);
  }
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

TEST_CASE("hosts meet where host 0 has its name on loopback, one is beside it, one learns it late",
          "[fault]") {
  const Result expected = on_one_host(3);
  const TestNetwork network({.hosts = 3});
  const TemporaryFolder folder;
  const auto give_names = [&](std::size_t host, const std::string& names) {
    const std::vector<std::string> mount{
        "/usr/bin/mount", "--bind", folder.write(TestNetwork::name(host), names), "/etc/hosts"};
    require_status(run_program(network.command(host, mount)), 0);
  };
  const std::string alone = "127.0.0.1 localhost\n";
  give_names(0, alone + "127.0.1.1 " + TestNetwork::name(0) + "\n");
  give_names(2, alone);
  JobOnHosts job(network, kPerceptron, 3);
  job.run_beside(1, 0);
  job.replace("--rendezvous", str(TestNetwork::name(0), ":", JobOnHosts::kPort));
  job.start();
  const bool was_told = eventually([&] {
    return job.all_output().find("host 0 is not yet at host0:29500: host0: ") != std::string::npos;
  });
  INFO(job.all_output());
  REQUIRE(was_told);
  std::ofstream(folder.path(TestNetwork::name(2)), std::ios::app)
      << TestNetwork::address(0) << " " << TestNetwork::name(0) << "\n";
  check_all_well(job, job.wait(), expected);
  CHECK_THAT(job.all_output(), ContainsSubstring("host0 is 127.0.1.1 here") &&
                                   !ContainsSubstring("this host's address is 127."));
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

TEST_CASE("a host whose clock is an hour ahead changes nothing", "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 2);
  job.preload(1, HOUR_AHEAD);
  const std::vector<Ended> ended = job.run();
  check_all_well(job, ended, on_one_host(2));
}
