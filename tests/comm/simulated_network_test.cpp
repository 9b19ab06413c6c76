#include "framework/comm/simulated_network.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/comm/host_members.h"
#include "tests/catch.h"

using namespace lockstep;
using comm::LinkSpeed;
using comm::Schedule;
using comm::SimulatedCall;
using comm::SimulatedHosts;
using comm::SimulatedNetwork;
using Kind = comm::Verb::Kind;

namespace {

constexpr LinkSpeed kSlow{.latency = 1, .bytes_per_second = 1e3};

// Returns a ring: members pass slices on to the next one, 2 (members - 1) times.
Schedule ring(int members) {
  Schedule schedule{.members = members, .slices = members};
  for (int round = 0; round < 2 * (members - 1); ++round) {
    const bool adds = round < members - 1;
    auto& to = (adds ? schedule.adding : schedule.passing).emplace_back();
    for (int member = 0; member < members; ++member) {
      const int slice = (member + 2 * members - round) % members;
      to.push_back({member, (member + 1) % members, {0, members}, {slice, 1, 1}});
    }
  }
  return schedule;
}

double seconds(const Schedule& schedule, std::size_t bytes, const LinkSpeed& link,
               std::size_t times = 1) {
  return SimulatedNetwork(schedule.members, link).run(schedule, bytes, times).seconds;
}

double cost(const Schedule& schedule, std::size_t bytes, const LinkSpeed& link) {
  return comm::ScheduleCost(schedule).seconds(bytes, link);
}

}  // namespace

TEST_CASE("a ring over equal links takes 2 (n - 1) / n of the bytes and as many latencies") {
  for (const int n : {2, 3, 4, 7, 64}) {
    INFO(n << " members");
    SimulatedNetwork network(n, kSlow);
    const SimulatedCall call = network.run(ring(n), 6400);
    const double rounds = 2.0 * (n - 1);
    const double adding = (n - 1) * 6400.0 / n / comm::kAddedPerSecond;
    CHECK(call.seconds ==
          Approx(rounds * (kSlow.latency + 6.4 / n + comm::kPerMessage) + adding).epsilon(1e-9));
    CHECK(call.messages == 2 * (n - 1));
    CHECK(call.bytes == Approx(rounds / n * 6400).margin(1));
    CHECK(network.connections() == (n == 2 ? 1 : 2));
  }
}

TEST_CASE("where all members do alike the simulated time is what the cost model says") {
  for (const LinkSpeed& link : {kSlow, comm::kLoopback}) {
    for (const int n : {2, 4, 8, 32}) {
      for (const std::size_t bytes : {std::size_t{256}, std::size_t{1} << 20}) {
        for (const int levels : {1, comm::all_levels(n)}) {
          INFO(n << " members, " << levels << " levels, " << bytes << " bytes, " << link);
          for (const Schedule& schedule :
               {comm::recursive_doubling(n, levels), comm::recursive_halving(n, levels),
                comm::gathering(n, levels)}) {
            CHECK(seconds(schedule, bytes, link) ==
                  Approx(cost(schedule, bytes, link)).epsilon(1e-6));
          }
        }
      }
    }
  }
}

TEST_CASE("members that wait for others on a shared link take longer than the cost model says") {
  // The root sends to the others one after another; the last one has the bytes after all sends.
  const Schedule schedule = comm::spreading(5, 3);
  CHECK(seconds(schedule, 1000, kSlow) == Approx(4 + 1).epsilon(1e-3));
  // One of 5 members has no partner in some rounds: it goes ahead, and the sum is later.
  for (const int n : {3, 5, 6, 11}) {
    const Schedule halving = comm::recursive_halving(n, 1);
    const double simulated = seconds(halving, 6000, kSlow);
    CHECK(simulated >= 0.5 * cost(halving, 6000, kSlow));
    CHECK(simulated <= 1.5 * cost(halving, 6000, kSlow));
  }
}

TEST_CASE("of two that go on beside each other one has the link while the other one waits") {
  const Schedule schedule = comm::recursive_halving(4, 1);
  const double one = seconds(schedule, 4000, kSlow);
  CHECK(one == Approx(2 * 1 + 3).epsilon(1e-3));
  const double two = seconds(schedule, 4000, kSlow, 2);
  CHECK(two < 2 * one);
  CHECK(two >= 2 * 3);
  // The link is the limit; times that are not simulated take as long as those that are.
  const double many = seconds(schedule, 4000, kSlow, 100);
  CHECK(many >= 100 * 3);
  CHECK(many == Approx(100 * 3).epsilon(0.2));
  CHECK(seconds(schedule, 4000, kSlow, 200) - many ==
        Approx(many - seconds(schedule, 4000, kSlow, 0)).epsilon(0.05));
  // Making the data is the limit if that takes longer.
  SimulatedNetwork network(4, kSlow);
  CHECK(network.run(schedule, 4000, 10, 50).seconds == Approx(10 * 50 + one).epsilon(1e-3));
}

TEST_CASE("messages to all others at once take as the schedule of one round does") {
  for (const int n : {2, 5, 16}) {
    for (const std::size_t bytes : {100, 100'000}) {
      SimulatedNetwork network(n, kSlow);
      CHECK(network.all_to_all(bytes, 1, /*adds=*/true).seconds ==
            Approx(seconds(comm::recursive_halving(n, comm::all_levels(n)),
                           bytes * static_cast<std::size_t>(n), kSlow))
                .epsilon(1e-6));
      CHECK(network.connections() == n - 1);
    }
  }
}

TEST_CASE("a schedule for another number of members is refused") {
  SimulatedNetwork network(4, kSlow);
  CHECK_THROWS_AS(network.run(ring(3), 100), ValueError);
  CHECK_THROWS_AS(SimulatedHosts(4, 2, kSlow).run(Kind::broadcast, 100), ValueError);
}

TEST_CASE("simulated hosts have as many connections as connected ones") {
  // tcp_communicator.h has these numbers, and a test counts them there.
  const std::vector<std::pair<int, std::int64_t>> connections{{2, 1},  {4, 3},   {8, 7},
                                                              {16, 6}, {32, 10}, {64, 15}};
  for (const auto& [hosts, count] : connections) {
    INFO(hosts << " hosts");
    SimulatedHosts simulated(hosts, 1, comm::kLoopback);
    (void)simulated.run(Kind::all_reduce, 1 << 10);
    (void)simulated.run(Kind::all_reduce, 2 << 20);
    CHECK(simulated.connections() == count);
  }
}

TEST_CASE("hosts send the bytes of one member each where their members are a subtree") {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  for (const int members : {1, 2, 8}) {
    INFO(members << " members a host");
    SimulatedHosts hosts(4, members, comm::kLoopback);
    const SimulatedCall all = hosts.run(Kind::all_reduce, kBytes);
    CHECK(static_cast<double>(all.bytes) == Approx(1.5 * kBytes).epsilon(1e-3));
    for (const Kind kind : {Kind::reduce_scatter, Kind::all_gather}) {
      const SimulatedCall half = hosts.run(kind, kBytes);
      CHECK(static_cast<double>(half.bytes) == Approx(0.75 * kBytes).epsilon(1e-3));
      CHECK(half.seconds >= 0.75 * kBytes / comm::kLoopback.bytes_per_second);
      CHECK(half.seconds < all.seconds);
    }
    // The same call costs the same, and nothing on one host.
    CHECK(hosts.run(Kind::all_reduce, kBytes).seconds == all.seconds);
    CHECK(SimulatedHosts(1, members, comm::kLoopback).run(Kind::all_reduce, kBytes).seconds == 0);
  }
  // Three members are two subtrees: each host sends both sums to each other host.
  SimulatedHosts threes(4, 3, comm::kLoopback);
  CHECK(static_cast<double>(threes.run(Kind::reduce_scatter, kBytes).bytes) ==
        Approx(2 * 0.75 * kBytes).epsilon(1e-3));
  CHECK(threes.connections() == 3);
  // Halves are added where they are rounded: each member's own are sent.
  CHECK(SimulatedHosts(4, 2, comm::kLoopback).run(Kind::reduce_scatter, kBytes, true).bytes ==
        Approx(2 * 0.75 * kBytes).epsilon(1e-3));
}

TEST_CASE("a buffer may have fewer bytes than there are members, and a piece fewer than rows") {
  CHECK(SimulatedHosts(4, 2, kSlow).run(Kind::all_gather, 4).seconds > 0);
  CHECK(comm::HostPieces(std::size_t{1} << 21, 100).count == 2);
}

TEST_CASE("a thousand hosts have few connections, and as many messages as rounds need", "[bulk]") {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  SimulatedHosts hosts(1024, 1, {.latency = 50e-6, .bytes_per_second = 1.17e9});
  const SimulatedCall small = hosts.run(Kind::all_reduce, 8);
  const SimulatedCall large = hosts.run(Kind::all_reduce, kBytes);
  CHECK(hosts.connections() <= 128);
  CHECK(large.messages <= 256);
  CHECK(static_cast<double>(large.bytes) == Approx(2.0 * 1023 / 1024 * kBytes).epsilon(1e-3));
  CHECK(large.seconds > 2.0 * kBytes / 1.17e9);
  CHECK(small.seconds < 2e-3);
}
