#include "tests/hosts/test_network.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/hosts/sockets.h"
#include "tests/support/ended.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Clock = std::chrono::steady_clock;
using Program = std::unique_ptr<ChildProgram>;

constexpr std::uint16_t kPort = 5000;

// A server on a host, once it listens.
Program serve(const TestNetwork& network, std::size_t host,
              const std::function<void(const Descriptor&)>& one_client) {
  Program server = run_on(network, host, [&one_client] {
    const Descriptor listening = new_tcp_socket();
    listen_at(listening, kPort);
    std::cout << "listening\n" << std::flush;
    while (true) one_client(accept_one(listening));
    return 0;
  });
  const bool listens =
      eventually([&] { return server->out() == "listening\n" || !server->running(); });
  INFO(server->err());
  REQUIRE(listens);
  REQUIRE(server->running());
  return server;
}

// Sends back all that comes.
void echo(const Descriptor& client) {
  for (std::string byte; !(byte = receive(client, 1)).empty();) send_all(client, byte);
}

// What a function on a host returns, which must be 0 where all is well.
void run_well(const TestNetwork& network, std::size_t host, const std::function<int()>& body) {
  check_status(run_on(network, host, body)->wait(), 0);
}

// 0 if an echo comes back from a host.
int reaches(std::size_t host, std::chrono::milliseconds timeout) {
  const Descriptor socket = new_tcp_socket();
  if (!connects_to(socket, TestNetwork::address(host), kPort, timeout)) return 1;
  send_all(socket, "hello");
  return receive(socket, 5) == "hello" ? 0 : 2;
}

std::string own_interfaces() {
  std::ifstream file("/proc/self/net/dev");
  std::ostringstream names;
  for (std::string line; std::getline(file, line);) names << line.substr(0, line.find(':')) << "\n";
  return names.str();
}

bool all_ended(const std::vector<pid_t>& pids) {
  return std::all_of(pids.begin(), pids.end(), [](pid_t pid) { return ended(pid); });
}

}  // namespace

TEST_CASE("hosts of a test network reach each other, and have names of their own") {
  const std::string before = own_interfaces();
  TestNetwork network({.hosts = 3});
  CHECK(own_interfaces() == before);
  for (std::size_t to = 0; to < 3; ++to) {
    const Program server = serve(network, to, echo);
    for (std::size_t from = 0; from < 3; ++from) {
      run_well(network, from, [&] { return reaches(to, std::chrono::seconds(10)); });
    }
  }
  for (std::size_t host = 0; host < 3; ++host) {
    const Ended end = run_program(network.command(
        host, {"/bin/sh", "-c", "hostname; pwd; echo $HOME; getent hosts host2; ls /dev/shm"}));
    const std::string home = network.home(host);
    CHECK(lines_of(end.out) == Lines{TestNetwork::name(host), home, home, "10.77.0.3       host2"});
  }
}

TEST_CASE("a test network keeps to its rate") {
  constexpr std::size_t kBytesPerSecond = 100'000'000 / 8;
  for (const double delay_ms : {0.0, 2.0}) {
    TestNetwork network({.hosts = 2, .rate_mbit = 100, .delay_ms = delay_ms});
    const Program sink = serve(network, 0, [](const Descriptor& client) {
      std::vector<char> buffer(1 << 20);
      std::size_t received = 0;
      const auto begin = Clock::now();
      while (Clock::now() - begin < std::chrono::seconds(1)) {
        const ssize_t count = ::recv(client.get(), buffer.data(), buffer.size(), 0);
        if (count <= 0) break;
        received += static_cast<std::size_t>(count);
      }
      std::cout << received << "\n" << std::flush;
    });
    Program source = run_on(network, 1, [] {
      const Descriptor socket = new_tcp_socket();
      if (!connects_to(socket, TestNetwork::address(0), kPort)) return 1;
      while (true) send_all(socket, std::string(1 << 16, 'x'));  // throws once the sink has closed
      return 0;
    });
    static_cast<void>(source->wait());
    const auto lines = lines_of(sink->out());
    INFO(source->err());
    REQUIRE(lines.size() == 2);
    CHECK(std::stoul(lines[1]) < kBytesPerSecond * 3 / 2);
    CHECK(std::stoul(lines[1]) > kBytesPerSecond / 10);
  }
}

TEST_CASE("a test network delays either way") {
  TestNetwork network({.hosts = 2, .delay_ms = 5});
  const Program server = serve(network, 1, echo);
  run_well(network, 0, [] {
    const Descriptor socket = new_tcp_socket();
    if (!connects_to(socket, TestNetwork::address(1), kPort)) return 1;
    auto shortest = Clock::duration::max();
    for (int i = 0; i < 10; ++i) {
      const auto begin = Clock::now();
      send_all(socket, "x");
      if (receive(socket, 1) != "x") return 2;
      shortest = std::min(shortest, Clock::now() - begin);
    }
    std::cout << std::chrono::duration<double>(shortest).count() << " s\n";
    const bool as_told =
        shortest >= std::chrono::milliseconds(10) && shortest < std::chrono::milliseconds(30);
    return as_told ? 0 : 3;
  });
}

TEST_CASE("a test network loses packets, and TCP comes through") {
  constexpr std::size_t kSent = 100;
  TestNetwork network({.hosts = 2, .loss_percent = 30});
  const Program receiver = run_on(network, 1, [] {
    const Descriptor socket = new_udp_socket();
    bind_to(socket, kPort);
    std::cout << "listening\n" << std::flush;
    std::array<char, 1> byte{};
    while (::recv(socket.get(), byte.data(), byte.size(), 0) >= 0) std::cout << "x\n" << std::flush;
    return 0;
  });
  REQUIRE(eventually([&] { return receiver->out() == "listening\n"; }));
  run_well(network, 0, [] {
    const Descriptor socket = new_udp_socket();
    if (!connects_to(socket, TestNetwork::address(1), kPort)) return 1;
    for (std::size_t i = 0; i < kSent; ++i) send_all(socket, "x");
    return 0;
  });
  const auto received = [&] { return lines_of(receiver->out()).size() - 1; };
  CHECK(eventually([&] { return received() + network.dropped(1) == kSent; }));
  CHECK(network.dropped(1) > 0);
  CHECK(received() > 0);

  const Program server = serve(network, 1, echo);
  run_well(network, 0, [] { return reaches(1, std::chrono::seconds(30)); });
}

TEST_CASE("a host that is unplugged is reached no more until it is plugged again") {
  for (const double delay_ms : {0.0, 0.5}) {
    INFO("delay " << delay_ms);
    TestNetwork network({.hosts = 3, .delay_ms = delay_ms});
    const Program server = serve(network, 1, echo);
    const auto reached = [&](std::size_t from, std::chrono::milliseconds timeout) {
      return run_on(network, from, [&] { return reaches(1, timeout); })->wait().status == 0;
    };
    CHECK(reached(0, std::chrono::seconds(10)));
    network.unplug(1);
    CHECK(!reached(0, std::chrono::milliseconds(300)));
    network.plug(1);
    CHECK(reached(0, std::chrono::seconds(10)));
    network.unplug(2);
    CHECK(reached(0, std::chrono::seconds(10)));
  }
}

TEST_CASE("a test network tells what is left on its hosts") {
  TestNetwork network({.hosts = 2});
  CHECK(network.left_behind() == Lines{});
  {
    const Program server = serve(network, 1, echo);
    CHECK(network.processes(0).empty());
    CHECK(network.processes(1) == std::vector<pid_t>{server->pid()});
    const Lines left = network.left_behind();
    REQUIRE(left.size() == 2);
    CHECK_THAT(left[0], ContainsSubstring(str("host1: process ", server->pid())));
    CHECK(left[1] == "host1: a socket listens at 00000000:1388");
  }
  CHECK(network.left_behind() == Lines{});
  CHECK(run_program(network.command(0, {"/bin/sh", "-c", "echo > /dev/shm/forgotten"})).status ==
        0);
  CHECK(network.left_behind() == Lines{"host0: /dev/shm/forgotten"});
}

TEST_CASE("nothing is left of a test network, also where its program is killed") {
  const std::string before = own_interfaces();
  std::vector<pid_t> keepers;
  Program stray;
  {
    TestNetwork network({.hosts = 2, .delay_ms = 1});
    keepers = network.keepers();
    CHECK(keepers.size() == 4);
    stray = serve(network, 0, echo);
  }
  CHECK(all_ended(keepers));
  CHECK(stray->wait().status == 128 + SIGKILL);

  ChildProgram killed([] {
    const TestNetwork network({.hosts = 2, .delay_ms = 1});
    const Program server = serve(network, 0, echo);
    for (const pid_t pid : network.keepers()) std::cout << pid << "\n";
    std::cout << server->pid() << "\nready\n" << std::flush;
    while (true) ::pause();
    return 0;
  });
  REQUIRE(eventually([&] { return killed.out().find("ready") != std::string::npos; }));
  keepers.clear();
  std::istringstream pids(killed.out());
  for (pid_t pid = 0; pids >> pid;) keepers.push_back(pid);
  CHECK(keepers.size() == 5);
  REQUIRE(::kill(killed.pid(), SIGKILL) == 0);
  CHECK(killed.wait().by_signal);
  CHECK(eventually([&] { return all_ended(keepers); }));
  CHECK(own_interfaces() == before);
}
