// Maps that span a job, with trees that have static values and axes for single leaves.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Named = std::unordered_map<std::string, Tensor>;

// Runs in each of three members of a job. Each member's maps have one replica.
void map_trees() {
  const std::int64_t own = axis_index("data");
  const auto f = [](const Named& named, int by) {
    return std::pair(Named{{"sum", by * psum(named.at("x"), "i")}, {"own", named.at("x")}}, by);
  };
  const Named named{{"x", at::full({1, 2}, own, at::kLong)}, {"unused", at::ones({1})}};
  const auto [result, by] = pmap(
      f, {.in_axes = 0, .out_axes = {{{"own", std::nullopt}, {"sum", 0}}, std::nullopt}})(named, 5);
  expect(result.at("sum").equal(at::full({1, 2}, 15, at::kLong)) && by == 5, "the sum");
  expect(result.at("own").equal(at::full({2}, 0, at::kLong)), "the first replica's leaf");

  // Members with one replica each compare static values across members.
  const auto number = [](const Tensor& x) { return std::pair(x, axis_index("i")); };
  const std::string rest =
      ": the results of replicas 0 and 1 differ in their static values, 0 and 1; return as tensors "
      "what is not the same on all replicas";
  const auto refused = [&](const auto& map) {
    const std::string text = message_of<ValueError>([&] { (void)map(number)(at::ones({1})); });
    expect(text.find(rest) != std::string::npos, "not refused: " + text);
  };
  refused([](const auto& g) { return pmap(g); });
  refused([](const auto& g) { return shard_map(g, Mesh({{"i", 3}}), P("i"), P("i")); });
}

}  // namespace

TEST_CASE("trees of maps over a job: static values, and axes of single leaves") {
  for (const LaunchMode mode : kModes) {
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      for (const std::int64_t workers : {3, 2}) {
        check_launched(map_trees,
                       {.replicas = 3, .workers = workers, .mode = mode, .backend = backend});
      }
    }
  }
}
