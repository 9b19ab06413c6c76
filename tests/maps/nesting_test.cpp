// Maps in maps.

#include <atomic>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

constexpr std::uint64_t kInputSeed = 20250506;

// A map whose only options are the axis' name, in_axes and out_axes.
struct ByPmap {
  static constexpr const char* name = "pmap";
  template <typename F>
  static auto map(F f, const std::string& axis, InAxes in = {}, OutAxes out = 0) {
    return pmap(std::move(f), {.axis_name = axis, .in_axes = std::move(in), .out_axes = out});
  }
};
struct ByVmap {
  static constexpr const char* name = "vmap";
  template <typename F>
  static auto map(F f, const std::string& axis, InAxes in = {}, OutAxes out = 0) {
    return vmap(std::move(f), {.axis_name = axis, .in_axes = std::move(in), .out_axes = out});
  }
};

Tensor normal(at::IntArrayRef sizes) {
  return at::randn(sizes, at::detail::createCPUGenerator(Key(kInputSeed).bits()), at::kFloat);
}

// Returns the row-major indices, and sums along each axis alone and along both.
auto positions_and_sums(const Tensor& x) {
  const std::int64_t size = axis_size({"outer", "inner"});
  return std::tuple(
      at::tensor({axis_index("outer"), axis_index("inner"), axis_index({"outer", "inner"}),
                  axis_index({"inner", "outer"}), size},
                 at::kLong),
      psum(x, "inner"), psum(x, "outer"), psum(x, {"outer", "inner"}));
}

template <typename Outer, typename Inner>
void check_two_deep() {
  INFO(Inner::name << " in " << Outer::name);
  const auto f = Outer::map(
      [](const Tensor& rows) { return Inner::map(positions_and_sums, "inner")(rows); }, "outer");
  const Tensor x = at::arange(12).view({2, 3, 2});
  const auto [positions, inner, outer, both] = f(x);
  CHECK(positions.equal(at::tensor({0, 0, 0, 0, 6, 0, 1, 1, 2, 6, 0, 2, 2, 4, 6,
                                    1, 0, 3, 1, 6, 1, 1, 4, 3, 6, 1, 2, 5, 5, 6},
                                   at::kLong)
                            .view({2, 3, 5})));
  CHECK(inner.equal(x.sum(1, true).expand_as(x)));
  CHECK(outer.equal(x.sum(0, true).expand_as(x)));
  CHECK(both.equal(x.sum(0).sum(0).expand_as(x)));
}

// Applies other operators over the outer axis, the inner, and both together.
Tensor mixture(const Tensor& x) {
  const Tensor all = all_gather(x, {"inner", "outer"});        // (6, 6)
  const Tensor piece = psum_scatter(all, {"outer", "inner"});  // (6)
  const Tensor moved = ppermute(piece, "outer", {{0, 1}, {1, 0}});
  return pmax(moved, "inner") + pbroadcast(x, {"outer", "inner"}, 4) * pmean(piece.sin(), "outer");
}

template <typename Outer, typename Inner>
Tensor mixed(const Tensor& x) {
  return Outer::map([](const Tensor& rows) { return Inner::map(mixture, "inner")(rows); },
                    "outer")(x);
}

template <typename A, typename B, typename C>
void check_three_deep() {
  INFO(C::name << " in " << B::name << " in " << A::name);
  const Tensor x = at::arange(24).view({2, 3, 4});
  const auto innermost = [](const Tensor& one) {
    const Tensor place = at::full({}, axis_index({"c", "a", "b"}), at::kLong);
    return std::tuple(psum(one, {"a", "c"}), psum(one, {"a", "b", "c"}), psum(one, "b"), place);
  };
  const auto f = A::map(
      [&](const Tensor& plane) {
        return B::map([&](const Tensor& row) { return C::map(innermost, "c")(row); }, "b")(plane);
      },
      "a");
  const auto [over_a_c, over_all, over_b, place] = f(x);
  CHECK(over_a_c.equal(x.sum(0, true).sum(2, true).expand_as(x)));
  CHECK(over_all.equal(x.sum().expand_as(x)));
  CHECK(over_b.equal(x.sum(1, true).expand_as(x)));
  CHECK(place.equal(at::arange(24).view({4, 2, 3}).permute({1, 2, 0})));
}

template <typename Outer, typename Inner>
void check_same_name() {
  const auto f = Outer::map(
      [](const Tensor& x) { return Inner::map([](const Tensor& one) { return one; }, "i")(x); },
      "i");
  CHECK_THROWS_AS(f(at::ones({2, 2})), ValueError);
  CHECK_THROWS_WITH(
      f(at::ones({2, 2})),
      ContainsSubstring(std::string(Inner::name) + " over 'i' at nesting_test.cpp:") &&
          ContainsSubstring(": axis 'i' is bound already by a map around it "
                            "(bound: 'i'); nested axes need different names"));
}

// Lets replica (1, 2) throw while all others wait for it, along one axis or both.
template <typename Outer, typename Inner>
void check_errors(const AxisNames& waiting) {
  INFO(Inner::name << " in " << Outer::name << " over " << waiting.text());
  const auto failing = [&](const auto& fail) {
    return Outer::map(
        [&](const Tensor& rows) {
          return Inner::map(
              [&](const Tensor& x) {
                if (axis_index("outer") == 1 && axis_index("inner") == 2) fail();
                return psum(x, waiting);
              },
              "inner")(rows);
        },
        "outer");
  };
  const Tensor x = at::ones({2, 3});
  const auto damaged = failing([] { throw DataError("file is damaged"); });
  CHECK_THROWS_AS(damaged(x), DataError);
  CHECK_THROWS_WITH(damaged(x), "replica 1: replica 2 of 'inner': file is damaged");
  const auto beyond = failing([] { throw std::out_of_range("beyond"); });
  CHECK_THROWS_AS(beyond(x), ReplicaError);
  CHECK_THROWS_WITH(beyond(x), ContainsSubstring("replica 1: replica 2 of 'inner': beyond (in ") &&
                                   ContainsSubstring("map over 'inner' at nesting_test.cpp:") &&
                                   Catch::Matchers::EndsWith(", arguments Float ())"));
  // The next call is not disturbed.
  CHECK(failing([] {})(x).sizes() == at::IntArrayRef({2, 3}));
}

}  // namespace

TEST_CASE("an inner function reaches both axes by name") {
  check_two_deep<ByPmap, ByPmap>();
  check_two_deep<ByPmap, ByVmap>();
  check_two_deep<ByVmap, ByPmap>();
  check_two_deep<ByVmap, ByVmap>();
}

TEST_CASE("three maps deep, in every mixture") {
  check_three_deep<ByPmap, ByPmap, ByPmap>();
  check_three_deep<ByPmap, ByPmap, ByVmap>();
  check_three_deep<ByPmap, ByVmap, ByPmap>();
  check_three_deep<ByPmap, ByVmap, ByVmap>();
  check_three_deep<ByVmap, ByPmap, ByPmap>();
  check_three_deep<ByVmap, ByPmap, ByVmap>();
  check_three_deep<ByVmap, ByVmap, ByPmap>();
  check_three_deep<ByVmap, ByVmap, ByVmap>();
}

TEST_CASE("whichever maps nest, the bits are the same") {
  INFO("seed " << kInputSeed);
  const Tensor x = normal({2, 3, 6});
  const Tensor expected = mixed<ByPmap, ByPmap>(x);
  CHECK(mixed<ByPmap, ByVmap>(x).equal(expected));
  CHECK(mixed<ByVmap, ByPmap>(x).equal(expected));
  CHECK(mixed<ByVmap, ByVmap>(x).equal(expected));
  // One map whose axis has all replicas adds in the same order.
  const auto sum = [](const AxisNames& axes) {
    return [=](const Tensor& one) { return psum(one, axes); };
  };
  const auto nested = [&](const Tensor& rows) {
    return ByPmap::map(sum({"outer", "inner"}), "inner")(rows);
  };
  CHECK(ByPmap::map(nested, "outer")(x).flatten(0, 1).equal(
      ByPmap::map(sum("i"), "i")(x.flatten(0, 1))));
}

TEST_CASE("the outer function calls collectives before, between and after inner maps") {
  const auto f = [](const Tensor& rows) {
    const Tensor before = psum(rows, "outer");
    const Tensor once =
        ByPmap::map([](const Tensor& x) { return psum(x, "inner"); }, "inner")(before);
    const Tensor between = psum(once, "outer");
    const Tensor twice = ByVmap::map(
        [](const Tensor& x) {
          return psum(x, {"inner", "outer"});
        },
        "inner")(between);
    return psum(twice, "outer");
  };
  const Tensor x = at::arange(6).view({2, 3});
  // The sums: 15 everywhere, twice that on two replicas, then over both axes, then the outer one.
  CHECK(ByPmap::map(f, "outer")(x).equal(at::full({2, 3}, 15 * 2 * 6 * 2, at::kLong)));
  CHECK(ByVmap::map(f, "outer")(x).equal(at::full({2, 3}, 15 * 2 * 6 * 2, at::kLong)));
}

TEST_CASE("inner maps may have another size on each outer replica") {
  const auto f = [](const Tensor& x) {
    const std::int64_t lanes = 1 + axis_index("outer");
    const auto inner = [](const Tensor& one) { return psum(one, "inner"); };
    return pmap(inner, {.axis_name = "inner",
                        .in_axes = {std::nullopt},
                        .out_axes = std::nullopt,
                        .axis_size = lanes})(x);
  };
  CHECK(ByPmap::map(f, "outer")(at::ones({3})).equal(at::tensor({1.0, 2.0, 3.0})));
}

TEST_CASE("the same name twice is refused, and free again after the map") {
  check_same_name<ByPmap, ByPmap>();
  check_same_name<ByPmap, ByVmap>();
  check_same_name<ByVmap, ByPmap>();
  check_same_name<ByVmap, ByVmap>();
  const auto sum = [](const Tensor& x) { return psum(x, "i"); };
  const auto one_after_another = [&](const Tensor& x) {
    return ByPmap::map(sum, "i")(x) + ByVmap::map(sum, "i")(x);
  };
  CHECK(ByPmap::map(one_after_another, "outer")(at::ones({2, 3})).equal(at::full({2, 3}, 6.0)));
}

TEST_CASE("an axis that no map around binds is named, and those that are bound") {
  const auto inner = [](const Tensor& x) { return psum(x, "other"); };
  const auto f =
      ByPmap::map([&](const Tensor& rows) { return ByVmap::map(inner, "inner")(rows); }, "outer");
  CHECK_THROWS_AS(f(at::ones({2, 3})), NameError);
  CHECK_THROWS_WITH(f(at::ones({2, 3})), ContainsSubstring("'other'") &&
                                             ContainsSubstring("'outer'") &&
                                             ContainsSubstring("'inner'"));
  // The inner axis ends with its map.
  const auto after = [](const Tensor& rows) {
    const Tensor y = ByPmap::map([](const Tensor& x) { return x; }, "inner")(rows);
    return psum(y, "inner");
  };
  CHECK_THROWS_AS(ByPmap::map(after, "outer")(at::ones({2, 3})), NameError);
}

TEST_CASE("an error of an inner replica ends all, and says which of which it was") {
  for (const AxisNames& waiting :
       {AxisNames("inner"), AxisNames("outer"), AxisNames({"outer", "inner"})}) {
    check_errors<ByPmap, ByPmap>(waiting);
    check_errors<ByPmap, ByVmap>(waiting);
    check_errors<ByVmap, ByPmap>(waiting);
    check_errors<ByVmap, ByVmap>(waiting);
  }
}

TEST_CASE("maps nest without names where no collective uses the default one") {
  const Tensor x = at::arange(24.0).view({2, 3, 4});
  const auto sums = [](const Tensor& row) {
    return vmap([](const Tensor& y) { return 2 * y; })(row);
  };
  const auto planes = [&](const Tensor& plane) {
    return pmap([&](const Tensor& row) { return sums(row); })(plane);
  };
  CHECK(pmap(planes)(x).equal(2 * x));
  CHECK(vmap(planes)(x).equal(2 * x));
  // The gradient of a value that inner maps share is summed over them all the same.
  const auto scaled = [](const Tensor& xs, const Tensor& by) {
    const auto times = [](const Tensor& a, const Tensor& b) { return a * b; };
    return pmap(times, {.in_axes = {0, std::nullopt}})(xs, by);
  };
  const auto loss = [&](const Tensor& by) {
    return vmap(scaled, {.in_axes = {0, std::nullopt}})(x.select(2, 1), by).sum();
  };
  CHECK(grad(loss)(at::full({}, 3.0)).item<double>() == x.select(2, 1).sum().item<double>());
  // An outer map may use "i" while no inner map runs.
  const auto outer = [&](const Tensor& plane) {
    return psum(vmap(sums)(plane), "i") + static_cast<double>(axis_size("i"));
  };
  CHECK(pmap(outer)(x).equal((2 * x.sum(0, true) + 2).expand_as(x)));
  // In both maps "i" could be either's.
  const auto either = [&](const Tensor& plane) {
    return vmap([](const Tensor& row) { return psum(row, "i"); })(plane);
  };
  CHECK_THROWS_AS(pmap(either)(x), NameError);
  CHECK_THROWS_WITH(pmap(either)(x),
                    ContainsSubstring("psum over 'i' (nesting_test.cpp:") &&
                        ContainsSubstring("): axis 'i' may be that of a map without a name or "
                                          "of one around it (bound: 'i', '(unnamed 2)'); give "
                                          "the one without a name an axis_name"));
}

TEST_CASE("static arguments pass through both maps") {
  const auto inner = [](const Tensor& x, double by, const std::string& word) {
    return x * by + static_cast<double>(word.size()) + static_cast<double>(axis_index("inner"));
  };
  const auto outer = [&](const Tensor& rows, double by, const std::string& word) {
    return ByVmap::map(inner, "inner")(rows, by, word);
  };
  const Tensor x = at::ones({2, 3});
  const Tensor expected = 10.5 + at::arange(3.0).expand({2, 3});
  CHECK(ByPmap::map(outer, "outer")(x, 2.5, std::string("eight888")).equal(expected));
  // A pointer reaches the function unchanged: all calls count in one place.
  std::atomic<int> calls{0};
  const auto counting = [](const Tensor& one, std::atomic<int>* count) {
    ++*count;
    return one;
  };
  const auto counted = [&](const Tensor& rows, std::atomic<int>* count) {
    return ByPmap::map(counting, "inner")(rows, count);
  };
  (void)ByPmap::map(counted, "outer")(x, &calls);
  CHECK(calls == 6);
}

TEST_CASE("in_axes and out_axes of both maps move dimensions") {
  const Tensor x = at::arange(24).view({2, 3, 4});
  const auto same = [](const Tensor& one) { return one; };
  // The outer map cuts the last dimension, the inner the last that is left: (2) remains.
  const auto by = [&](OutAxes inner_out, OutAxes outer_out) {
    const auto outer = [&](const Tensor& rows) {
      return ByVmap::map(same, "inner", {-1}, inner_out)(rows);
    };
    return ByPmap::map(outer, "outer", {-1}, outer_out)(x);
  };
  CHECK(by(0, 0).equal(x.permute({2, 1, 0})));
  CHECK(by(-1, -1).equal(x));
  CHECK(by(0, 1).equal(x.permute({1, 2, 0})));
  CHECK(by(1, 0).equal(x.permute({2, 0, 1})));
  CHECK(by(std::nullopt, 0).equal(x.select(1, 0).t()));
  CHECK(by(0, std::nullopt).equal(x.select(2, 0).t()));
  CHECK(by(std::nullopt, std::nullopt).equal(x.select(2, 0).select(1, 0)));
}

TEST_CASE("arguments that one map broadcasts the other may cut, and the function may capture") {
  const Tensor a = at::arange(3.0);
  const Tensor b = at::arange(4.0);
  const auto product = [](const Tensor& x, const Tensor& y) { return x * y; };
  const auto table = [&](const Tensor& one, const Tensor& all) {
    return ByVmap::map(product, "inner", {std::nullopt, 0})(one, all);
  };
  CHECK(ByPmap::map(table, "outer", {0, std::nullopt})(a, b).equal(a.outer(b)));
  const auto capturing = [&](const Tensor& one) {
    return ByPmap::map([&](const Tensor& y) { return one * y; }, "inner")(b);
  };
  CHECK(ByPmap::map(capturing, "outer")(a).equal(a.outer(b)));
}

TEST_CASE("a result for each element of a tuple has its own way through both maps") {
  const Tensor x = at::arange(6.0).view({2, 3});
  const auto inner = [](const Tensor& one) {
    return std::tuple(one, psum(one, "inner"), psum(one, {"outer", "inner"}));
  };
  const auto outer = [&](const Tensor& rows) {
    return ByVmap::map(inner, "inner", {}, {0, std::nullopt, std::nullopt})(rows);
  };
  const auto [all, rows, sum] = ByPmap::map(outer, "outer", {}, {1, 0, std::nullopt})(x);
  CHECK(all.equal(x.t()));
  CHECK(rows.equal(x.sum(1)));
  CHECK(sum.item().toDouble() == 15);
}

TEST_CASE("a thousand lanes in two replicas") {
  const auto lane = [](const Tensor& x) {
    return std::tuple(psum(x, {"outer", "inner"}), psum(x, "outer"));
  };
  const auto outer = [&](const Tensor& xs) { return ByVmap::map(lane, "inner")(xs); };
  const Tensor x = at::arange(1000).view({2, 500});
  const auto [all, pairs] = ByPmap::map(outer, "outer")(x);
  CHECK(all.equal(x.sum().expand({2, 500})));
  CHECK(pairs.equal(x.sum(0, true).expand({2, 500})));
}
