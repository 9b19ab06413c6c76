// Threads that stay between maps.

#include "framework/maps/kept_threads.h"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

using Ids = std::multiset<std::thread::id>;

// The threads of the replicas, and of the two lanes in each.
struct Crew {
  Ids replicas;
  Ids lanes;
};

Crew crew_of(std::int64_t replicas) {
  Crew crew;
  std::mutex mutex;
  const auto note = [&](Ids& ids) {
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  };
  pmap(
      [&] {
        note(crew.replicas);
        vmap([&] { note(crew.lanes); }, {.axis_name = "lane", .axis_size = 2})();
      },
      {.axis_size = replicas})();
  return crew;
}

bool all_differ(const Ids& ids) {
  return std::set<std::thread::id>(ids.begin(), ids.end()).size() == ids.size();
}

// Makes `count` nodes of a graph.
void make_nodes(std::int64_t count) {
  Tensor x = at::ones({1}).requires_grad_();
  for (std::int64_t i = 0; i < count; ++i) x = x + 1;
}

// Returns the second derivative of a function with several psums of its own, its caller's and a
// lane's tensors: their backwards must come in one order on all replicas.
Tensor second_derivatives(const Tensor& x) {
  const Tensor captured = x.sum() * 2;
  const auto replica = [&](const Tensor& row) {
    const auto loss = [&](const Tensor& at) {
      const Tensor own = psum(at * captured, "i") * psum(at * at, "i");
      const auto lane = [&](const Tensor& one) { return psum(own * one * at, "i"); };
      return (vmap(lane, {.axis_name = "lane"})(at::ones({2}, at::kDouble)) * own).sum();
    };
    return grad([&](const Tensor& at) { return grad(loss)(at).sum(); })(row);
  };
  return pmap(replica, {.axis_name = "i"})(x);
}

Tensor input(std::int64_t replicas) {
  return at::arange(1, replicas + 1, at::kDouble).requires_grad_();
}

}  // namespace

TEST_CASE("kept threads: the replicas and lanes of the next map run in them") {
  maps::end_kept_threads();
  const Crew first = crew_of(4);
  CHECK(all_differ(first.replicas));
  CHECK(all_differ(first.lanes));
  const Crew second = crew_of(4);
  CHECK(second.replicas == first.replicas);
  CHECK(second.lanes == first.lanes);
  const Crew fewer = crew_of(2);
  CHECK(all_differ(fewer.replicas));
  for (const auto id : fewer.replicas) CHECK(first.replicas.contains(id));
  const Crew more = crew_of(6);
  CHECK(all_differ(more.replicas));
  for (const auto id : first.replicas) CHECK(more.replicas.contains(id));
}

TEST_CASE("kept threads: few of many are woken, and all of them do their part") {
  (void)crew_of(8);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t replicas = 1 + round % 8;
    const auto sum =
        pmap([] { return psum(at::ones({1}), "i"); }, {.axis_name = "i", .axis_size = replicas})();
    REQUIRE(sum.sum().item<float>() == static_cast<float>(replicas * replicas));
  }
}

TEST_CASE("kept threads: each thread that maps has its own") {
  maps::end_kept_threads();
  const Ids own = crew_of(2).replicas;
  Ids others;
  std::thread other([&] { others = crew_of(2).replicas; });
  const Ids beside = crew_of(2).replicas;
  other.join();
  CHECK(beside == own);
  for (const auto id : others) CHECK(!own.contains(id));
}

TEST_CASE("kept threads: math threads are those of the map that runs") {
  for (const std::int64_t threads : {1, 2, 1, 3}) {
    const Tensor seen = pmap([] { return at::ones({1}) * at::get_num_threads(); },
                             {.axis_size = 2, .threads_per_replica = threads})();
    CHECK(at::equal(seen, at::ones({2, 1}) * threads));
  }
}

TEST_CASE("kept threads: after a failure they run the next map") {
  maps::end_kept_threads();
  const Ids before = crew_of(3).replicas;
  const auto fails = [] {
    if (axis_index("i") == 1) throw std::runtime_error("on purpose");
    (void)psum(at::ones({1}), "i");
  };
  CHECK_THROWS_AS(pmap(fails, {.axis_name = "i", .axis_size = 3})(), ReplicaError);
  CHECK(crew_of(3).replicas == before);
}

TEST_CASE("kept threads: nodes of a graph are numbered before, in and after a map in this order") {
  for (const std::int64_t replicas : {1, 3, 5, 2}) {
    make_nodes(100);
    const std::uint64_t before = maps::next_node();
    std::vector<std::uint64_t> starts(static_cast<std::size_t>(replicas));
    pmap(
        [&] {
          const std::int64_t own = axis_index("i");
          starts[static_cast<std::size_t>(own)] = maps::next_node();
          make_nodes(10 * (own + 1));
        },
        {.axis_name = "i", .axis_size = replicas})();
    CHECK(starts == std::vector<std::uint64_t>(starts.size(), before));
    CHECK(maps::next_node() >= before + static_cast<std::uint64_t>(10 * replicas));
  }
}

TEST_CASE("kept threads: derivatives have the bits of fresh threads, whatever ran before") {
  for (const std::int64_t replicas : {2, 4, 3}) {
    Tensor fresh;
    std::thread other([&] { fresh = second_derivatives(input(replicas)); });
    other.join();
    // These replicas make different numbers of nodes, some of them in lanes.
    pmap(
        [&] {
          const std::int64_t own = axis_index("i");
          make_nodes(50 * own);
          if (own == 1) {
            vmap([] { make_nodes(70); }, {.axis_name = "lane", .axis_size = 3})();
          }
        },
        {.axis_name = "i", .axis_size = 2})();
    CHECK(at::equal(second_derivatives(input(replicas)), fresh));
  }
}

TEST_CASE("kept threads: the graph of an earlier map is captured, also where its thread made it") {
  const Tensor captured = at::ones({}, at::kDouble).requires_grad_();
  for (const bool fresh : {true, false}) {
    INFO("fresh " << fresh);
    maps::end_kept_threads();
    const Tensor x = input(1);
    Tensor earlier;
    const auto step = pmap([&](const Tensor& row) {
      Tensor result = (row * captured).tanh();
      if (earlier.defined()) result = result + earlier;  // not detached
      return earlier = result;
    });
    const Tensor first = step(x);
    if (fresh) maps::end_kept_threads();
    const Tensor second = step(x);
    CHECK_THROWS_AS((first + second).sum().backward(), NameError);
  }
}
