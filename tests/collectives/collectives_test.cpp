#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/psum_scatter.h"
#include "framework/replicas/pmap.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/everywhere.h"

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

TEST_CASE("collectives in threads: the design's examples") {
  run_all(example_cases());
}

TEST_CASE("collectives in threads: random trees") {
  run_all(random_cases(/*rounds=*/30));
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
      "axis 'i' is not bound here; no axis is: collectives run inside a function that pmap or "
      "launch "
      "runs");
  CHECK_THROWS_AS(psum(x, "i"), NameError);
  CHECK_THROWS_WITH(psum(x, "i"), rest);
  CHECK_THROWS_WITH(psum(1, "i"), rest);
  CHECK_THROWS_WITH(pmean(x, "i"), rest);
  CHECK_THROWS_WITH(pmax(x, "i"), rest);
  CHECK_THROWS_WITH(pmin(x, "i"), rest);
  CHECK_THROWS_WITH(all_gather(x, "i"), rest);
  CHECK_THROWS_WITH(psum_scatter(x, "i"), rest);
  CHECK_THROWS_WITH(axis_index("i"), rest);
  CHECK_THROWS_WITH(axis_size("i"), rest);
}

TEST_CASE("a backward outside of its map says where gradients are taken") {
  const auto refused = [](const auto& collective, const std::string& operation) {
    const Tensor x = at::ones({3, 3}).requires_grad_();
    const Tensor result = pmap(collective)(x);
    CHECK_THROWS_AS(result.sum().backward({}, /*retain_graph=*/true), NameError);
    CHECK_THROWS_WITH(
        result.sum().backward({}, /*retain_graph=*/true),
        ContainsSubstring("the backward of " + operation + " over 'i' (collectives_test.cpp:") &&
            ContainsSubstring(") runs outside the map that its forward ran in; take the gradient "
                              "inside the mapped function"));
    // Nor in another map of the same name.
    CHECK_THROWS_AS(
        pmap([&] { result.sum().backward({}, /*retain_graph=*/true); }, {.axis_size = 1})(),
        NameError);
    CHECK(!x.grad().defined());
  };
  refused([](const Tensor& x) { return psum(x, "i"); }, "psum");
  refused([](const Tensor& x) { return pmean(x, "i"); }, "pmean");
  refused([](const Tensor& x) { return pmax(x, "i"); }, "pmax");
  refused([](const Tensor& x) { return pmin(x, "i"); }, "pmin");
  refused([](const Tensor& x) { return all_gather(x, "i"); }, "all_gather");
  refused([](const Tensor& x) { return psum_scatter(x, "i"); }, "psum_scatter");
}
