#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/pargmax.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/everywhere.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

void run_all(const std::vector<Case>& cases) {
  REQUIRE(!cases.empty());
  for (const Case& one : cases) {
    INFO(one.name);
    CHECK_NOTHROW(run_in_threads(one));
  }
}

}  // namespace

TEST_CASE("collectives in the threads of a job: every case", "[slow]") {
  Sample sample("collectives in the threads of a job");
  for (const auto& [replicas, cases] : cases_by_replicas(/*rounds=*/5)) {
    INFO(replicas << " replicas, " << cases.size() << " cases");
    for (const auto backend : {Backend::automatic, Backend::gloo}) {
      if (!sample.next()) continue;
      CHECK_NOTHROW(run_launched(cases, LaunchMode::threads, backend));
    }
  }
}

TEST_CASE("collectives in the threads of a job that take turns: every case", "[slow]") {
  Sample sample("collectives in threads that take turns");
  for (const auto& [replicas, cases] : cases_by_replicas(/*rounds=*/2)) {
    for (const std::int64_t workers : std::set{std::int64_t{1}, replicas / 2, replicas - 1}) {
      if (workers < 1 || !sample.next()) continue;
      INFO(replicas << " replicas on " << workers << " workers, " << cases.size() << " cases");
      // Both backends in turn.
      const auto backend = (replicas + workers) % 2 == 0 ? Backend::gloo : Backend::automatic;
      CHECK_NOTHROW(run_launched(cases, LaunchMode::threads, backend, workers));
    }
  }
}

TEST_CASE("collectives in threads: the design's examples") {
  run_all(example_cases());
}

TEST_CASE("collectives in threads: random trees") {
  run_all(random_cases(/*rounds=*/30));
}

TEST_CASE("collectives in threads: the operators that move values, by example") {
  run_all(operator_cases());
  run_all(ragged_cases());
}

TEST_CASE("collectives in threads: in place", "[collectives]") {
  run_all(in_place_cases());
}

TEST_CASE("collectives in threads: large messages") {
  run_all(large_cases());
}

TEST_CASE("collectives in threads: derivatives") {
  run_all(derivative_cases());
}

TEST_CASE("collectives in threads: refused calls") {
  run_all(error_cases());
}

TEST_CASE("outside of a map no axis is bound") {
  const Tensor x = at::ones({2});
  const auto rest = ContainsSubstring(
      "axis 'i' is not bound here; no axis is: collectives run inside a function that pmap, vmap, "
      "shard_map or launch runs");
  CHECK_THROWS_AS(psum(x, "i"), NameError);
  CHECK_THROWS_WITH(psum(x, "i"), rest);
  CHECK_THROWS_WITH(psum(1, "i"), rest);
  CHECK_THROWS_WITH(pmean(x, "i"), rest);
  CHECK_THROWS_WITH(pmax(x, "i"), rest);
  CHECK_THROWS_WITH(pmin(x, "i"), rest);
  CHECK_THROWS_WITH(all_gather(x, "i"), rest);
  CHECK_THROWS_WITH(psum_scatter(x, "i"), rest);
  CHECK_THROWS_WITH(all_to_all(x, "i", 0, 0), rest);
  CHECK_THROWS_WITH(pswapaxes(x, "i", 0), rest);
  CHECK_THROWS_WITH(ragged_all_to_all(x, x, x, x, x, x, "i"), rest);
  CHECK_THROWS_WITH(ppermute(x, "i", {}), rest);
  CHECK_THROWS_WITH(pshuffle(x, "i", {0}), rest);
  CHECK_THROWS_WITH(pbroadcast(x, "i", 0), rest);
  CHECK_THROWS_WITH(pargmax(x, "i"), rest);
  CHECK_THROWS_WITH(pargmin(x, "i"), rest);
  CHECK_THROWS_WITH(axis_index("i"), rest);
  CHECK_THROWS_WITH(axis_size("i"), rest);
}

TEST_CASE("the mean of integers is float32, whatever LibTorch's default dtype is") {
  using Dtype = decltype(c10::get_default_dtype());
  struct DefaultDtype {
    explicit DefaultDtype(at::ScalarType dtype) { set(c10::scalarTypeToTypeMeta(dtype)); }
    ~DefaultDtype() { set(before); }
    static void set(Dtype dtype) { c10::set_default_dtype(dtype); }
    Dtype before = c10::get_default_dtype();
  };
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf}) {
    const DefaultDtype here(dtype);
    for (const auto operand : {at::kInt, at::kByte, at::kBool}) {
      const Tensor x = at::arange(3, at::kLong).to(operand);
      const Tensor mean = pmap([](const Tensor& own) { return pmean(own, "i"); },
                               {.axis_name = "i", .out_axes = std::nullopt})(x);
      CHECK(mean.scalar_type() == at::kFloat);
      CHECK(mean.equal(x.to(at::kFloat).sum() / 3));
    }
  }
}

TEST_CASE("ragged_all_to_all needs operands and outputs of one shape on all replicas") {
  const auto refused = [](bool operand, const std::string& lengths) {
    const auto call = [&] {
      pmap(
          [&] {
            const Tensor table = at::zeros({2}, at::kLong);
            const Tensor rows = at::ones({3 + axis_index("i"), 2});
            const Tensor usual = at::ones({3, 2});
            (void)ragged_all_to_all(operand ? rows : usual, operand ? usual : rows, table, table,
                                    table, table, "i");
          },
          {.axis_name = "i", .axis_size = 2})();
    };
    CHECK_THROWS_AS(call(), CollectiveMismatch);
    CHECK_THROWS_WITH(
        call(), ContainsSubstring("operand of 3 rows, output of 3") && ContainsSubstring(lengths));
  };
  refused(true, "operand of 4 rows, output of 3");
  refused(false, "operand of 3 rows, output of 4");
}

TEST_CASE("what leaves a replica by another way than as a result has no backward outside") {
  const auto refused = [](const auto& collective, const std::string& operation) {
    const Tensor x = at::ones({3, 3}).requires_grad_();
    Tensor leaked;
    pmap([&](const Tensor& part) {
      const Tensor result = collective(part);
      if (axis_index("i") == 0) leaked = result;
    })(x);
    const auto backward = [&] { leaked.sum().backward({}, /*retain_graph=*/true); };
    CHECK_THROWS_AS(backward(), NameError);
    CHECK_THROWS_WITH(
        backward(),
        ContainsSubstring("the backward of " + operation + " over 'i' (collectives_test.cpp:") &&
            ContainsSubstring(") runs outside the replica that its forward ran in: its result left "
                              "the map by another way than as the function's result"));
    // The backward does not run in another map of the same name, either.
    CHECK_THROWS_AS(pmap(backward, {.axis_size = 1})(), NameError);
    CHECK(!x.grad().defined());
  };
  refused([](const Tensor& x) { return psum(x, "i"); }, "psum");
  refused([](const Tensor& x) { return pmean(x, "i"); }, "pmean");
  refused([](const Tensor& x) { return pmax(x, "i"); }, "pmax");
  refused([](const Tensor& x) { return pmin(x, "i"); }, "pmin");
  refused([](const Tensor& x) { return all_gather(x, "i"); }, "all_gather");
  refused([](const Tensor& x) { return psum_scatter(x, "i"); }, "psum_scatter");
  refused([](const Tensor& x) { return all_to_all(x, "i", 0, 0); }, "all_to_all");
  refused([](const Tensor& x) { return pswapaxes(x, "i", 0); }, "pswapaxes");
  refused([](const Tensor& x) { return ppermute(x, "i", {{0, 1}}); }, "ppermute");
  refused([](const Tensor& x) { return pshuffle(x, "i", {2, 0, 1}); }, "pshuffle");
  refused([](const Tensor& x) { return pbroadcast(x, "i", 1); }, "pbroadcast");
}
