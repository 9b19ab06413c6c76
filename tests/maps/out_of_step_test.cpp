#include "tests/maps/out_of_step.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using std::chrono::milliseconds;
using Run = std::function<void()>;

// The maps that run the four replicas.
struct Runner {
  std::string name;
  std::function<void(const Run&)> on_axis;
  std::function<void(const Run&)> on_mesh;
};

void by_pmap(const Run& run) {
  pmap(run, {.axis_name = "data", .axis_size = kReplicas})();
}

void by_vmap(const Run& run) {
  vmap(run, {.axis_name = "data", .axis_size = kReplicas})();
}

void by_shard_map(const Run& run) {
  shard_map(run, Mesh({{"row", 2}, {"column", 2}}), {}, P())();
}

void by_pmap_of_pmap(const Run& run) {
  pmap([&] { pmap(run, {.axis_name = "column", .axis_size = 2})(); },
       {.axis_name = "row", .axis_size = 2})();
}

void by_pmap_of_vmap(const Run& run) {
  pmap([&] { vmap(run, {.axis_name = "column", .axis_size = 2})(); },
       {.axis_name = "row", .axis_size = 2})();
}

void by_vmap_of_vmap(const Run& run) {
  vmap([&] { vmap(run, {.axis_name = "column", .axis_size = 2})(); },
       {.axis_name = "row", .axis_size = 2})();
}

// Returns the error that `call` throws, as "Type: text".
std::string error_of(const Run& call) {
  try {
    call();
  } catch (const Error& error) {
    return str(error.type(), ": ", error.what());
  }
  return "nothing";
}

// Returns the faults, by replica and in the error that the map threw: the root cause.
std::vector<std::string> faults_of(const OutOfStep& way, std::int64_t odd,
                                   const std::function<void(const Run&)>& runner) {
  std::vector<std::string> faults(kReplicas, "it did not end");
  const bool is_mismatch = way.others_end == "CollectiveMismatch";
  const std::string thrown = error_of([&] {
    runner([&] {
      const std::int64_t own = own_number(way);
      const Ending ending = ending_of(way, odd);
      faults[static_cast<std::size_t>(own)] = fault_of(ending, way, odd, own);
      if (ending.error) std::rethrow_exception(ending.error);
    });
  });
  std::erase(faults, "");
  const std::string root = is_mismatch ? way.others_end : way.odd_ends;
  if (thrown.rfind(root + ": replica ", 0) != 0) faults.push_back("the map threw " + thrown);
  const std::string missing = missing_in(thrown, way, odd);
  if (!missing.empty()) faults.push_back("the map threw " + thrown + missing);
  return faults;
}

// Checks that a map after one that failed is not disturbed.
void check_next(const Runner& runner, bool on_mesh) {
  const AxisNames all = on_mesh ? AxisNames{"row", "column"} : AxisNames("data");
  std::atomic<int> right{0};
  (on_mesh ? runner.on_mesh : runner.on_axis)(
      [&] { right += psum(at::ones({3}), all).equal(at::full({3}, 4.0)) ? 1 : 0; });
  CHECK(right == kReplicas);
}

void check_all(const Runner& runner, const std::vector<std::int64_t>& odd_ones) {
  for (const OutOfStep& way : ways_out_of_step()) {
    for (const std::int64_t odd : odd_ones) {
      INFO(runner.name << ": replica " << odd << " " << way.name);
      CHECK(faults_of(way, odd, way.on_mesh ? runner.on_mesh : runner.on_axis) ==
            std::vector<std::string>{});
      check_next(runner, way.on_mesh);
    }
  }
}

}  // namespace

// Runs each way with each replica as the odd one: more than 100 repetitions a round.
TEST_CASE("out of step: every way ends every replica of a pmap, soon and with both sides") {
  for (int round = 0; round < rounds(); ++round) {
    check_all({"pmap, shard_map", by_pmap, by_shard_map}, {0, 1, 2, 3});
  }
}

TEST_CASE("out of step: every way ends every lane of a vmap") {
  check_all({"vmap", by_vmap, by_vmap_of_vmap}, {0, 3});
}

TEST_CASE("out of step: on another axis, in nested maps") {
  for (const OutOfStep& way : ways_out_of_step()) {
    if (!way.on_mesh) continue;
    for (const std::int64_t odd : {0, 1, 2, 3}) {
      INFO("replica " << odd);
      CHECK(faults_of(way, odd, by_pmap_of_pmap) == std::vector<std::string>{});
      CHECK(faults_of(way, odd, by_pmap_of_vmap) == std::vector<std::string>{});
    }
  }
}

TEST_CASE("out of step: of many leaves one sees where they begin to differ") {
  const auto f = [] {
    std::vector<Tensor> tree;
    for (int i = 0; i < 100; ++i) tree.push_back(at::ones({i + 1, 7}));
    if (axis_index("i") == 1) tree[70] = at::ones({2, 2});
    (void)psum(tree, "i");
  };
  const std::string thrown = error_of([&] { pmap(f, {.axis_size = 2})(); });
  // Returns the digests of a part of the leaves, one from each replica.
  const auto digests = [&](const std::string& part) {
    const std::regex digest(part + ": ([0-9a-f]{4})");
    std::vector<std::string> found;
    for (std::sregex_iterator at(thrown.begin(), thrown.end(), digest), end; at != end; ++at) {
      found.push_back(at->str(1));
    }
    REQUIRE(found.size() == 2);
    return found;
  };
  for (const char* part : {"9 to 24", "25 to 40", "41 to 56", "73 to 88", "89 to 99"}) {
    CHECK(digests(part)[0] == digests(part)[1]);
  }
  CHECK(digests("57 to 72")[0] != digests("57 to 72")[1]);
  CHECK_THAT(thrown, !ContainsSubstring("differ in what is not shown"));
}

TEST_CASE("out of step: in the backward of a map that is differentiated from outside") {
  for (const std::int64_t odd : {0, 2}) {
    const auto losses = pmap(
        [&](const Tensor& x) {
          const Tensor sum = psum(x, "data");
          return axis_index("data") == odd ? x.sum() : sum.sum();
        },
        {.axis_name = "data"});
    const std::string thrown = error_of([&] {
      (void)grad([&](const Tensor& x) { return losses(x).sum(); })(at::ones({kReplicas, 3}));
    });
    CHECK_THAT(thrown, ContainsSubstring("CollectiveMismatch: "));
    CHECK_THAT(thrown, ContainsSubstring(str("replica ", odd, " has returned")));
    CHECK_THAT(thrown, ContainsSubstring("the backward of psum over 'data' at out_of_step_test"));
  }
}

TEST_CASE("out of step: in a map's backward, in which replicas use results of different calls") {
  const auto losses = pmap([](const Tensor& x) {
    const Tensor a = psum(x, "i");
    const Tensor b = psum(x * x, "i");
    return axis_index("i") == 0 ? a * 1 : b * 1;
  });
  const std::string thrown = error_of(
      [&] { (void)grad([&](const Tensor& x) { return losses(x).sum(); })(at::full({2}, 3.0)); });
  CHECK_THAT(thrown, ContainsSubstring("CollectiveMismatch: ") && ContainsSubstring("(call 1)") &&
                         ContainsSubstring("(call 2)"));
}

TEST_CASE("out of step: a verdict that a replica has caught is not that of the next map") {
  // Replica 0 is out of step if `is_bad`, and otherwise so late that replica 1 looks for a report.
  const auto meet = [](bool is_bad) {
    if (axis_index("i") == 0) {
      if (is_bad) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
    try {
      (void)psum(at::ones({1}), "i");
    } catch (const CollectiveMismatch&) {
      if (!is_bad) throw;
    }
  };
  for (const bool is_bad : {true, false}) {
    CHECK_NOTHROW(pmap([&] { meet(is_bad); }, {.axis_name = "i", .axis_size = 2})());
  }
  for (const bool is_bad : {true, false}) {
    const auto inner = [&] { pmap([&] { meet(is_bad); }, {.axis_name = "i", .axis_size = 2})(); };
    CHECK_NOTHROW(pmap(inner, {.axis_name = "outer", .axis_size = 1})());
  }
}

TEST_CASE("out of step: a replica that never arrives is a Timeout that says how far it came") {
  for (const std::int64_t absent : {0, 2}) {
    std::atomic<int> failed{0};
    std::promise<void> all_failed;
    std::vector<std::string> texts(kReplicas);
    const auto body = [&] {
      (void)psum(at::ones({5, 2}), "data");
      const std::int64_t own = axis_index("data");
      if (own == absent) return all_failed.get_future().wait();
      try {
        (void)pmean(at::ones({3}), "data");
      } catch (const Timeout& error) {
        texts[static_cast<std::size_t>(own)] = error.what();
        if (++failed == kReplicas - 1) all_failed.set_value();
        throw;
      }
    };
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(
        pmap(body, {.axis_name = "data", .axis_size = kReplicas, .timeout = milliseconds(300)})(),
        Timeout);
    CHECK(std::chrono::steady_clock::now() - begin < kJobEnds);
    for (std::int64_t own = 0; own < kReplicas; ++own) {
      if (own == absent) continue;
      CHECK_THAT(texts[static_cast<std::size_t>(own)],
                 ContainsSubstring(str("replica ", absent,
                                       " has not arrived: it is running, and "
                                       "the last collective it finished is psum over 'data' at "
                                       "out_of_step_test.cpp:")));
      CHECK_THAT(texts[static_cast<std::size_t>(own)],
                 ContainsSubstring("with (5, 2) float32, its 1st"));
    }
  }
}
