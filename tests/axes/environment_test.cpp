#include "framework/axes/environment.h"

#include <chrono>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

using Names = std::vector<std::string>;

// Returns the environment of a replica at these levels, with no others in reach.
std::unique_ptr<Environment> environment(std::vector<AxisLevel> levels) {
  return std::make_unique<Environment>(
      std::make_shared<groups::LocalReplicas>(0, nullptr, std::make_shared<calls::CallTable>(1)),
      std::move(levels), std::make_shared<comm::Cancellation>(), std::chrono::seconds(10));
}

AxisCall call(const AxisNames& names) {
  return {"psum", names, std::source_location::current()};
}

std::string bound() {
  return current_environment() == nullptr ? "none" : current_environment()->bound_names();
}

}  // namespace

TEST_CASE("a scope binds its axes while it lives, and restores those before") {
  const auto outer = environment({{{{"data", 4}}, 1, 1, {}}});
  const auto inner = environment({{{{"lane", 3}}, 2, 1, {}}});
  CHECK(bound() == "none");
  {
    const EnvironmentScope scope(outer.get());
    CHECK(bound() == "'data'");
    CHECK(axis_index_of(call("data")).index == 1);
    CHECK(axis_index_of(call("data")).size == 4);
    {
      const EnvironmentScope deeper(inner.get());
      CHECK(bound() == "'lane'");
      CHECK_THROWS_AS(axis_index_of(call("data")), NameError);
    }
    CHECK(bound() == "'data'");
    try {
      const EnvironmentScope nothing(nullptr);
      CHECK(bound() == "none");
      throw std::runtime_error("on the way out");
    } catch (const std::runtime_error&) {
      CHECK(bound() == "'data'");
    }
  }
  CHECK(bound() == "none");
}

TEST_CASE("axes are bound in one thread") {
  const auto here = environment({{{{"data", 2}}, 0, 1, {}}});
  const EnvironmentScope scope(here.get());
  std::string elsewhere;
  std::thread([&] { elsewhere = bound(); }).join();
  CHECK(elsewhere == "none");
  CHECK(bound() == "'data'");
}

TEST_CASE("an axis that is not bound is named, with those that are") {
  CHECK_THROWS_WITH(
      axis_index_of(call("data")),
      ContainsSubstring("psum over 'data' (environment_test.cpp:") &&
          ContainsSubstring("): axis 'data' is not bound here; no axis is: collectives run inside "
                            "a function that pmap, vmap, shard_map or launch runs"));
  const auto here = environment({{{{"data", 2}}, 0, 1, {}}, {{{"model", 3}}, 1, 1, {}}});
  const EnvironmentScope scope(here.get());
  CHECK_THROWS_AS(axis_index_of(call("date")), NameError);
  CHECK_THROWS_WITH(axis_index_of(call("date")),
                    ContainsSubstring("axis 'date' is not bound here; bound: 'data', 'model'"));
  CHECK_THROWS_WITH(axis_index_of(call("")), ContainsSubstring("axis '' is not bound here"));
  const auto spanning = environment({{{{"i", 2}}, 0, 1, {0, 0}, {0, 1}}});
  const EnvironmentScope in_its_map(spanning.get());
  CHECK_THROWS_WITH(axis_index_of(call("data")),
                    ContainsSubstring("bound: 'i'; a map in a job spans the job's replicas, in "
                                      "place of the job's own axis"));
}

TEST_CASE("axis names are each bound, and stand once") {
  const auto here = environment({{{{"data", 2}}, 0, 1, {}}});
  const EnvironmentScope scope(here.get());
  CHECK_THROWS_AS(axis_index_of(call(Names{})), ValueError);
  CHECK_THROWS_WITH(axis_index_of(call(Names{})),
                    ContainsSubstring("at least one axis name is needed"));
  CHECK_THROWS_WITH(axis_index_of(call({"data", "data"})),
                    ContainsSubstring("psum over ('data', 'data')") &&
                        ContainsSubstring("axis 'data' stands twice"));
  CHECK_THROWS_WITH(axis_index_of(call({"data", "model"})),
                    ContainsSubstring("axis 'model' is not bound here; bound: 'data'"));
}

TEST_CASE("several names count row-major in the order in which they are written") {
  // The replica is at row 1 and column 2 of a 2 x 3 mesh, in lane 3 of 5.
  const auto here =
      environment({{{{"row", 2}, {"column", 3}}, 5, 1, {}}, {{{"lane", 5}}, 3, 1, {}}});
  const EnvironmentScope scope(here.get());
  CHECK(axis_index_of(call("row")).index == 1);
  CHECK(axis_index_of(call("column")).index == 2);
  CHECK(axis_index_of(call({"row", "column"})).index == 5);
  CHECK(axis_index_of(call({"column", "row"})).index == 5);
  CHECK(axis_index_of(call({"lane", "row"})).index == 7);
  CHECK(axis_index_of(call({"column", "lane"})).index == 13);
  CHECK(axis_index_of(call({"column", "lane"})).size == 15);
  const auto* const replicas = &replicas_of(call({"row", "lane"}), {}, GroupSizes::equal);
  CHECK(replicas->rank() == 8);
  CHECK(replicas->size() == 10);
}

TEST_CASE("a call works on the axis, or on the own group in the order written") {
  const auto here = environment({{{{"data", 4}}, 3, 1, {}}});
  const EnvironmentScope scope(here.get());
  const auto* const whole = &replicas_of(call("data"), {}, GroupSizes::equal);
  CHECK(whole->rank() == 3);
  CHECK(whole->size() == 4);
  const auto* const pair = &replicas_of(call("data"), {{0, 2}, {3, 1}}, GroupSizes::equal);
  CHECK(pair->rank() == 0);
  CHECK(pair->size() == 2);
  CHECK(replicas_of(call("data"), {{0, 2}, {1, 3}}, GroupSizes::equal).rank() == 1);
  const auto* const three = &replicas_of(call("data"), {{0}, {1, 3, 2}}, GroupSizes::any);
  CHECK(three->rank() == 1);
  CHECK(three->size() == 3);
  CHECK_THROWS_AS(replicas_of(call("data"), {{0}, {1, 3, 2}}, GroupSizes::equal), ValueError);

  // A group is made once and kept.
  CHECK(&replicas_of(call("data"), {{0, 2}, {3, 1}}, GroupSizes::equal) == pair);
  CHECK(&replicas_of(call("data"), {}, GroupSizes::equal) == whole);
}
