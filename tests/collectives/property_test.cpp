#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/property_cases.h"
#include "tests/collectives/property_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kMostReplicas = 12;

// Digests by case, then replica. Each replica writes its own.
using Digests = std::vector<std::uint64_t>;

// Returns the work of every replica of a world, which leaves its digests in `digests`.
std::function<void()> checking(const World& world, const std::vector<PropertyCase>& cases,
                               Digests& digests) {
  digests.assign(cases.size() * static_cast<std::size_t>(world.size()), 0);
  return [&] {
    const std::int64_t replica = world.replica();
    auto next = static_cast<std::size_t>(replica);
    for (const PropertyCase& one : cases) {
      digests[next] = one.check(replica);
      next += static_cast<std::size_t>(world.size());
    }
  };
}

Digests run_bound(const World& world, const std::vector<PropertyCase>& cases,
                  const std::vector<Binding>& bindings) {
  Digests digests;
  bind_axes(world, bindings, 0, checking(world, cases, digests));
  return digests;
}

}  // namespace

TEST_CASE("property: operators over axis tuples are what the serial reference says") {
  constexpr std::uint64_t kWorlds = 200;
  constexpr std::int64_t kCases = 11;
  const Key key = property_key("operators over axis tuples");
  for (std::uint64_t round = 0; round < kWorlds; ++round) {
    Draw draw(key.fold(round));
    const World world = random_world(draw, kMostReplicas);
    const auto cases = random_property_cases(key.fold(round), world, kCases);
    const std::vector<Binding> mixed = random_bindings(draw, world);
    INFO("world " << round << ": " << world.text() << ", also as " << bindings_text(mixed));
    Digests in_threads;
    Digests in_lanes;
    Digests in_a_mixture;
    const auto all = [&](Binding binding) {
      return std::vector<Binding>(world.axes.size(), binding);
    };
    REQUIRE_NOTHROW(in_threads = run_bound(world, cases, all(Binding::pmap)));
    REQUIRE_NOTHROW(in_lanes = run_bound(world, cases, all(Binding::vmap)));
    REQUIRE_NOTHROW(in_a_mixture = run_bound(world, cases, mixed));
    CHECK(in_threads == in_lanes);
    CHECK(in_threads == in_a_mixture);
  }
}

TEST_CASE(
    "property: a function of trees and its gradients have the same bits under pmap and vmap") {
  const Key key = property_key("functions of trees");
  for (std::uint64_t round = 0; round < 60; ++round) {
    const World world{{{"i", static_cast<std::int64_t>(round % 6) + 1}}};
    const Program program(key.fold(round), world);
    INFO("program " << round << ", " << world.text());
    // Gradients are taken inside, and from outside by the sum of the losses.
    const auto inside = [&](const Program::Parameters& parameters, const Tensor& sample) {
      return program.step(parameters, sample);
    };
    const auto loss = [&](const Program::Parameters& parameters, const Tensor& sample) {
      return program.loss(parameters, sample);
    };
    const auto leaves_by = [&](const auto& map_inside, const auto& map_loss) {
      auto leaves = tree_leaves(map_inside(program.parameters(), program.samples()));
      const auto outside = grad([&](const Program::Parameters& parameters) {
        return map_loss(parameters, program.samples()).sum();
      })(program.parameters());
      for (const Tensor& leaf : tree_leaves(outside)) leaves.push_back(leaf);
      return leaves;
    };
    const PmapOptions threads{.in_axes = {std::nullopt, 0}, .threads_per_replica = 1};
    const VmapOptions lanes{.in_axes = {std::nullopt, 0}};
    const auto in_threads = leaves_by(pmap(inside, threads), pmap(loss, threads));
    const auto in_lanes = leaves_by(vmap(inside, lanes), vmap(loss, lanes));
    REQUIRE(in_threads.size() == 5);
    CHECK(digest_of(in_threads) == digest_of(in_lanes));
    CHECK(in_threads[1].abs().sum().item<double>() > 0);
  }
}

TEST_CASE("property: threads of launch, with lanes in them, give the bits of pmap") {
  const Key key = property_key("threads of launch");
  for (std::uint64_t round = 0; round < 12; ++round) {
    Draw draw(key.fold(round));
    const World world = random_world(draw, kMostReplicas);
    const auto cases = random_property_cases(key.fold(round), world, 5);
    INFO("world " << round << ": " << world.text());
    const std::vector<Binding> lanes(world.axes.size(), Binding::vmap);
    Digests launched;
    const auto body = checking(world, cases, launched);
    REQUIRE(launch([&] { bind_axes(world, lanes, 1, body); }, {.replicas = world.axes[0].size,
                                                               .mode = LaunchMode::threads,
                                                               .axis_name = world.axes[0].name}) ==
            0);
    const std::vector<Binding> threads(world.axes.size(), Binding::pmap);
    CHECK(launched == run_bound(world, cases, threads));
  }
}

TEST_CASE("vmap with 1,000 lanes: psum, a ring of ppermute and all_gather") {
  constexpr std::int64_t kLanes = 1000;
  const Tensor x = at::arange(2 * kLanes, at::kDouble).view({kLanes, 2});
  SourceDestinationPairs ring;
  for (std::int64_t i = 0; i < kLanes; ++i) ring.emplace_back(i, (i + 1) % kLanes);
  const auto [sum, moved, gathered] = vmap(
      [&](const Tensor& own) {
        const Tensor all = all_gather(own, "i");
        expect(same_bits(all, x), str("lane ", axis_index("i"), " gathered other values"));
        return std::tuple(psum(own, "i"), ppermute(own, "i", ring), all.sum(0));
      },
      {.axis_name = "i"})(x);
  CHECK(same_bits(sum, x.sum(0).expand({kLanes, 2})));
  CHECK(same_bits(moved, x.roll({1}, {0})));
  CHECK(same_bits(gathered, sum));
}
