#include "framework/comm/communicator.h"

#include <chrono>
#include <stdexcept>
#include <utility>
#include <vector>

#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/words.h"
#include "tests/support/settings.h"

using namespace lockstep;
using testing::Backend;
using testing::bytes;
using testing::everyone;
using testing::expect;
using testing::in_processes;
using testing::in_threads;
using testing::kFloat;
using testing::kSum;
using testing::name_of;
using testing::same;
using testing::slice;
using testing::sum_of;
using testing::values_of;
using testing::Words;

namespace {

// Checks every verb on `count` floats against the results of one replica alone.
void check_verbs(comm::Communicator& group, std::size_t count) {
  const int n = group.size();
  const auto replicas = static_cast<std::size_t>(n);
  const auto me = static_cast<std::size_t>(group.rank());
  const Words mine = values_of(group.rank(), count);
  const Words expected = sum_of(everyone(n), count);

  Words summed(count);
  group.all_reduce(bytes(mine), bytes(summed), kFloat, kSum);
  expect(same(summed, expected), str("all_reduce of ", count));

  Words in_place = mine;
  group.all_reduce(bytes(in_place), bytes(in_place), kFloat, kSum);
  expect(same(in_place, expected), str("all_reduce in place of ", count));

  const Words sliced = values_of(group.rank(), count * replicas, 5);
  Words own(count);
  group.reduce_scatter(bytes(sliced), bytes(own), kFloat, kSum);
  expect(same(own, slice(sum_of(everyone(n), count * replicas, 5), me * count, count)),
         str("reduce_scatter to ", count));

  Words gathered(count * replicas);
  group.all_gather(bytes(own), bytes(gathered));
  expect(same(gathered, sum_of(everyone(n), count * replicas, 5)),
         str("all_gather of the reduced slices of ", count));

  // Replica r sends p in [0, n) a part of length count + p * (r + 1) % 3, to tell sizes apart.
  const auto size = [&](std::size_t from, std::size_t to) { return count + to * (from + 1) % 3; };
  std::vector<std::size_t> send_sizes;
  std::vector<std::size_t> recv_sizes;
  Words outgoing;
  Words incoming;
  for (std::size_t peer = 0; peer < replicas; ++peer) {
    send_sizes.push_back(size(me, peer) * sizeof(float));
    recv_sizes.push_back(size(peer, me) * sizeof(float));
    const Words part = values_of(static_cast<int>(me * replicas + peer), size(me, peer));
    const Words from = values_of(static_cast<int>(peer * replicas + me), size(peer, me));
    outgoing.insert(outgoing.end(), part.begin(), part.end());
    incoming.insert(incoming.end(), from.begin(), from.end());
  }
  Words received(incoming.size());
  group.all_to_all(bytes(outgoing), send_sizes, bytes(received), recv_sizes);
  expect(same(received, incoming), str("all_to_all of ", count));

  // A chain: everyone sends to the next, the last to nobody.
  Words shifted(count, -1.0F);
  const int next = group.rank() + 1 < n ? group.rank() + 1 : comm::Communicator::kNobody;
  const int before = group.rank() > 0 ? group.rank() - 1 : comm::Communicator::kNobody;
  group.permute(bytes(mine), next, bytes(shifted), before);
  const Words chained =
      before == comm::Communicator::kNobody ? Words(count, -1.0F) : values_of(before, count);
  expect(same(shifted, chained), str("permute of ", count));

  Words copied = mine;
  group.broadcast(bytes(copied), n - 1);
  expect(same(copied, values_of(n - 1, count)), str("broadcast of ", count));
  group.barrier();
}

Backend any_backend() {
  return GENERATE(Backend::gloo, Backend::tcp, Backend::shared, Backend::hosts);
}

}  // namespace

TEST_CASE("every verb agrees with one replica's own computation", "[communicator]") {
  const Backend backend = any_backend();
  INFO(name_of(backend));
  testing::Sample sample(str("verbs, ", name_of(backend)));
  for (const int replicas : {1, 2, 3, 4, 5, 8}) {
    const auto body = [](comm::Communicator& group) {
      for (const std::size_t count : {0, 1, 7, 64, 1001, 4096, 4099, 70001}) {
        check_verbs(group, count);
      }
    };
    INFO(replicas << " replicas");
    if (sample.next()) CHECK_NOTHROW(in_threads(backend, replicas, body));
    if (sample.next()) CHECK_NOTHROW(in_processes(backend, replicas, body));
  }
}

TEST_CASE("4 to 16 MiB a slice, again and again", "[communicator][bulk][slow]") {
  const Backend backend = any_backend();
  INFO(name_of(backend));
  testing::Sample sample(str("large slices, ", name_of(backend)));
  // Gloo's own reduce-scatter gives wrong sums here.
  for (const int replicas : {2, 3, 4, 5, 8}) {
    if (!sample.next()) continue;
    const std::size_t count = (replicas <= 3 ? 16U : 4U) * 1024 * 1024 / sizeof(float) + 3;
    const auto n = static_cast<std::size_t>(replicas);
    const Words expected = sum_of(everyone(replicas), count * n);
    CHECK_NOTHROW(in_threads(backend, replicas, [&](comm::Communicator& group) {
      const auto me = static_cast<std::size_t>(group.rank());
      const Words mine = values_of(group.rank(), count * n);
      Words own(count);
      Words whole(count * n);
      for (int repetition = 0; repetition < 3; ++repetition) {
        group.reduce_scatter(bytes(mine), bytes(own), kFloat, kSum);
        expect(same(own, slice(expected, me * count, count)), "reduce_scatter");
        group.all_reduce(bytes(mine), bytes(whole), kFloat, kSum);
        expect(same(whole, expected), "all_reduce");
        std::fill(whole.begin(), whole.end(), 0.0F);
        group.all_gather(bytes(own), bytes(whole));
        expect(same(whole, expected), "all_gather");
      }
    }));
  }
}

TEST_CASE("subgroups keep the order they were given and run side by side", "[communicator]") {
  const Backend backend = any_backend();
  INFO(name_of(backend));
  const auto body = [](comm::Communicator& world) {
    const std::vector<std::vector<int>> groups{{0, 4}, {3, 1, 2}};
    const auto& members = groups[world.rank() == 0 || world.rank() == 4 ? 0 : 1];
    const auto group = world.subgroup(members);
    Words ranks(members.size());
    const Words mine{static_cast<float>(world.rank())};
    for (const std::size_t count : {1, 5000, 70001}) {
      group->all_gather(bytes(mine), bytes(ranks));
      expect(same(ranks, Words(members.begin(), members.end())), "members in order");
      Words summed(count);
      group->all_reduce(bytes(values_of(world.rank(), count)), bytes(summed), kFloat, kSum);
      expect(same(summed, sum_of(members, count)), "sum over the subgroup");
    }
    // A subgroup of a subgroup counts places in its parent.
    if (members.size() == 3 && group->rank() != 1) {
      const auto inner = group->subgroup(std::vector<int>{2, 0});
      Words pair(2);
      inner->all_gather(bytes(mine), bytes(pair));
      expect(same(pair, Words{2.0F, 3.0F}), "members of the inner group");
    }
    world.barrier();
  };
  CHECK_NOTHROW(in_threads(backend, 5, body));
  CHECK_NOTHROW(in_processes(backend, 5, body));
}

TEST_CASE("a group of any size is of no use after abort()", "[communicator]") {
  const Backend backend = any_backend();
  INFO(name_of(backend));
  for (const int replicas : {1, 2}) {
    CHECK_NOTHROW(in_threads(backend, replicas, [](comm::Communicator& group) {
      group.barrier();
      group.abort("enough");
      Words words(7);
      testing::expect_error<Aborted>(
          [&] { group.all_reduce(bytes(std::as_const(words)), bytes(words), kFloat, kSum); },
          "enough");
    }));
  }
}

TEST_CASE("arguments are checked with one replica as with several", "[communicator]") {
  const Backend backend = any_backend();
  INFO(name_of(backend));
  for (const int replicas : {1, 3}) {
    CHECK_NOTHROW(in_threads(backend, replicas, [&](comm::Communicator& group) {
      const auto refused = [](const auto& call, const std::string& part) {
        testing::expect_error<ValueError>(call, part);
      };
      Words a(4);
      Words b(5);
      const auto n = static_cast<std::size_t>(replicas);
      std::vector<std::size_t> sizes(n, 4);
      refused([&] { group.all_reduce(bytes(a), bytes(b), kFloat, kSum); },
              "input has 16 bytes, output 20");
      refused([&] { group.all_reduce(bytes(a), bytes(a), ElementType::boolean, ReduceOp::sum); },
              "booleans have no sum");
      refused([&] { group.all_reduce(bytes(b), bytes(b), ElementType::float64, ReduceOp::max); },
              "20 bytes, which is no whole number of float64");
      refused([&] { group.reduce_scatter(bytes(b), bytes(a), kFloat, kSum); },
              str(replicas, " slices of 16"));
      refused([&] { group.all_gather(bytes(a), bytes(b)); }, str(replicas, " times 16"));
      refused([&] { group.all_to_all(bytes(b), sizes, bytes(b), sizes); }, "add up to");
      refused([&] { group.permute(bytes(a), replicas, bytes(a), 0); }, "is not in a group of");
      refused([&] { group.broadcast(bytes(a), -1); }, "root -1");
      refused([&] { (void)group.subgroup(std::vector<int>{replicas}); }, "is not in a group of");
      refused([&] { (void)group.subgroup(std::vector<int>{0, 0}); }, "stands twice");
      refused([&] { (void)group.subgroup(std::vector<int>{}); }, "is not among its members []");
      group.barrier();  // and the group still works
    }));
  }
}

TEST_CASE("a replica that fails ends the others' collectives at once, with the root cause",
          "[failure]") {
  const Backend backend = any_backend();
  INFO(name_of(backend));
  for (int repetition = 0; repetition < 10; ++repetition) {
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_WITH(in_threads(backend, 4,
                                 [](comm::Communicator& group) {
                                   if (group.rank() == 2) throw std::runtime_error("root cause");
                                   Words words(100000);
                                   group.all_reduce(bytes(words), bytes(words), kFloat, kSum);
                                 }),
                      "root cause");
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  }
}

TEST_CASE("a replica whose process dies is lost to the others", "[failure]") {
  const Backend backend = any_backend();
  INFO(name_of(backend));
  for (const std::size_t count : {1U, 2000000U}) {
    CHECK_THROWS_WITH(in_processes(backend, 3,
                                   [&](comm::Communicator& group) {
                                     if (group.rank() == 1) ::_exit(0);
                                     Words words(count);
                                     group.all_reduce(bytes(words), bytes(words), kFloat, kSum);
                                   }),
                      ContainsSubstring("lost its connection to replica") ||
                          ContainsSubstring("lost replica 1, whose process has ended"));
  }
}
