#include "framework/axes/environment.h"

#include <map>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <thread>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

using Members = std::vector<std::int64_t>;

// A communicator that knows who is in it and moves nothing.
class Roster final : public Communicator {
 public:
  Roster(int rank, int size) : Communicator(rank, size) {}

  void abort(const std::string&) noexcept override {}
  const Ledger& ledger() const noexcept override { return ledger_; }

  int subgroups = 0;

 private:
  using Bytes = std::span<const std::byte>;
  using Buffer = std::span<std::byte>;
  using Sizes = std::span<const std::size_t>;
  [[noreturn]] static void refuse() { throw std::logic_error("nothing is to be sent"); }
  void do_all_reduce(Bytes, Buffer, ElementType, ReduceOp) override { refuse(); }
  void do_reduce_scatter(Bytes, Buffer, ElementType, ReduceOp) override { refuse(); }
  void do_all_gather(Bytes, Buffer) override { refuse(); }
  void do_all_to_all(Bytes, Sizes, Buffer, Sizes) override { refuse(); }
  void do_permute(Bytes, int, Buffer, int) override { refuse(); }
  void do_broadcast(Buffer, int) override { refuse(); }
  void do_barrier() override { refuse(); }
  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int place) override {
    ++subgroups;
    return std::make_shared<Roster>(place, static_cast<int>(members.size()));
  }

  Ledger ledger_;
};

Axis axis(const std::string& name, int index, int size) {
  return {name, index, size, std::make_shared<AxisGroup>(std::make_shared<Roster>(index, size))};
}

std::vector<std::string> bound_names() {
  std::vector<std::string> names;
  for (const Axis& bound : bound_axes()) names.push_back(bound.name);
  return names;
}

AxisCall call(const AxisNames& names) {
  return {"psum", names, std::source_location::current()};
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a scope binds its axes while it lives, and restores those before") {
  CHECK(bound_axes().empty());
  {
    const AxisScope outer({axis("data", 1, 4)});
    CHECK(bound_names() == Names{"data"});
    CHECK(axis_of(call("data")).index == 1);
    CHECK(axis_of(call("data")).size == 4);
    {
      const AxisScope inner({axis("lane", 2, 3)});
      CHECK(bound_names() == Names{"lane"});
      CHECK_THROWS_AS(axis_of(call("data")), NameError);
    }
    CHECK(bound_names() == Names{"data"});
    try {
      const AxisScope nothing({});
      CHECK(bound_axes().empty());
      throw std::runtime_error("on the way out");
    } catch (const std::runtime_error&) {
      CHECK(bound_names() == Names{"data"});
    }
  }
  CHECK(bound_axes().empty());
}

TEST_CASE("axes are bound in one thread") {
  const AxisScope scope({axis("data", 0, 2)});
  bool elsewhere_empty = false;
  std::thread([&] { elsewhere_empty = bound_axes().empty(); }).join();
  CHECK(elsewhere_empty);
  CHECK(bound_names() == Names{"data"});
}

TEST_CASE("an axis that is not bound is named, with those that are") {
  CHECK_THROWS_WITH(
      axis_of(call("data")),
      ContainsSubstring("psum over 'data' (environment_test.cpp:") &&
          ContainsSubstring("): axis 'data' is not bound here; no axis is: collectives "
                            "run inside a function that pmap or launch runs"));
  const AxisScope scope({axis("data", 0, 2), axis("model", 1, 3)});
  CHECK_THROWS_AS(axis_of(call("date")), NameError);
  CHECK_THROWS_WITH(axis_of(call("date")),
                    ContainsSubstring("axis 'date' is not bound here; bound: 'data', 'model'"));
  CHECK_THROWS_WITH(axis_of(call("")), ContainsSubstring("axis '' is not bound here"));
}

TEST_CASE("axis names are each bound, and stand once") {
  const AxisScope scope({axis("data", 0, 2)});
  CHECK_THROWS_AS(axis_of(call(Names{})), ValueError);
  CHECK_THROWS_WITH(axis_of(call(Names{})), ContainsSubstring("at least one axis name is needed"));
  CHECK_THROWS_AS(axis_of(call({"data", "data"})), ValueError);
  CHECK_THROWS_WITH(axis_of(call({"data", "data"})),
                    ContainsSubstring("psum over ('data', 'data')") &&
                        ContainsSubstring("axis 'data' stands twice"));
  CHECK_THROWS_WITH(axis_of(call({"data", "model"})),
                    ContainsSubstring("axis 'model' is not bound here; bound: 'data'"));
}

TEST_CASE("a call works on the axis, or on the own group in the order written") {
  const auto roster = std::make_shared<Roster>(3, 4);
  const AxisScope scope({{"data", 3, 4, std::make_shared<AxisGroup>(roster)}});
  CHECK(&replicas_of(call("data"), {}, GroupSizes::equal) == roster.get());
  const Communicator* const pair = &replicas_of(call("data"), {{0, 2}, {3, 1}}, GroupSizes::equal);
  CHECK(pair->rank() == 0);
  CHECK(pair->size() == 2);
  const Communicator* const turned =
      &replicas_of(call("data"), {{0, 2}, {1, 3}}, GroupSizes::equal);
  CHECK(turned->rank() == 1);
  const Communicator* const three = &replicas_of(call("data"), {{0}, {1, 3, 2}}, GroupSizes::any);
  CHECK(three->rank() == 1);
  CHECK(three->size() == 3);
  CHECK_THROWS_AS(replicas_of(call("data"), {{0}, {1, 3, 2}}, GroupSizes::equal), ValueError);

  // Made once and kept.
  CHECK(&replicas_of(call("data"), {{2, 0}, {3, 1}}, GroupSizes::equal) == pair);
  CHECK(roster->subgroups == 3);
}
