// Trees that maps take and give: trees with static values, and entries for single leaves.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/collectives/refused.h"

using namespace lockstep;
using lockstep::testing::refusal;

namespace {

struct Attention {
  Tensor weight, bias;
  std::int64_t heads = 1;
};
LOCKSTEP_TREE(Attention, weight, bias, heads)

// A user's class that is no tree.
struct Config {
  explicit Config(double value) : rate(value) {}
  Config(Config&&) = default;  // and no copies
  double rate;
};

}  // namespace

TEST_CASE("an unordered map and a pair with a number are cut like any tree") {
  using Named = std::unordered_map<std::string, Tensor>;
  const Named named{{"w", at::arange(6.0).view({3, 2})}, {"b", at::arange(3.0)}};
  const auto f = [](const Named& own, const std::pair<Tensor, int>& scaled) {
    return Named{{"sum", own.at("w").sum() + own.at("b") * scaled.first * scaled.second}};
  };
  const auto check = [&](const auto& map) {
    const Named result = map(f)(named, std::pair(at::full({3}, 2.0), 5));
    CHECK(result.at("sum").equal(named.at("w").sum(1) + 10 * named.at("b")));
  };
  check([](const auto& g) { return pmap(g); });
  check([](const auto& g) { return vmap(g); });
  const auto in_blocks = [&](const Named& own, const std::pair<Tensor, int>& scaled) {
    return Named{{"sum", own.at("w").sum(1) + own.at("b") * scaled.first * scaled.second}};
  };
  check([&](const auto&) { return shard_map(in_blocks, Mesh({{"i", 3}}), P("i"), P("i")); });
}

TEST_CASE("static values of a tree ride along, whole and the same, and are no operands") {
  const Attention layer{at::arange(4.0).view({2, 2}), at::ones({2}), 8};
  const auto f = [](const Attention& own) {
    const Attention sum = psum(own, "i");
    return std::tuple(sum, std::string("of ") + std::to_string(own.heads));
  };
  const auto [sum, text] = pmap(f)(layer);
  CHECK(sum.weight.equal(at::stack({layer.weight.sum(0), layer.weight.sum(0)})));
  CHECK(sum.heads == 8);
  CHECK(text == "of 8");
  const auto loss = [](const Attention& own) {
    return (own.weight * static_cast<double>(own.heads)).sum();
  };
  const Attention slope = grad(loss)(layer);
  CHECK(slope.weight.equal(at::full({2, 2}, 8.0)));
  CHECK(slope.heads == 8);
}

TEST_CASE("static values of a result that differ between replicas are refused") {
  const auto told = [](const auto& map) {
    return refusal(
        [&] { (void)map([](const Tensor& x) { return std::pair(x, axis_index("i")); }); });
  };
  const std::string rest =
      ": the results of replicas 0 and 1 differ in their static values, 0 and 1; return as tensors "
      "what is not the same on all replicas";
  const Tensor x = at::ones({3});
  CHECK_THAT(told([&](const auto& f) { return pmap(f)(x); }), ContainsSubstring(rest));
  CHECK_THAT(told([&](const auto& f) { return vmap(f)(x); }), ContainsSubstring(rest));
  CHECK_THAT(told([&](const auto& f) {
               return shard_map(f, Mesh({{"i", 3}}), P("i"), P("i"))(x);
             }),
             ContainsSubstring(rest));
}

TEST_CASE("static_argument gives a class of one's own to every replica, uncopied") {
  const Config config(0.5);
  const auto f = [&](const Tensor& x, const Config& given) {
    return &given == &config ? x * given.rate : at::zeros({});
  };
  const Tensor x = at::ones({3});
  CHECK(pmap(f)(x, static_argument(config)).equal(0.5 * x));
  CHECK(vmap(f)(x, static_argument(config)).equal(0.5 * x));
  CHECK(shard_map(f, Mesh({{"i", 3}}), {P("i"), P()}, P("i"))(x, static_argument(config))
            .equal(0.5 * x));
  const auto by_rate = [](const Tensor& part, const Config& given) { return part * given.rate; };
  CHECK(pmap(by_rate)(x, static_argument(Config(2))).equal(2 * x));
  const auto beside = [](const std::pair<Tensor, StaticArgument<std::vector<double>>>& both) {
    return both.first * both.second.value[1];
  };
  CHECK(pmap(beside)(std::pair(x, static_argument(std::vector<double>{2, 3}))).equal(3 * x));
}

TEST_CASE("a map takes its axis' name alone, and one axis or spec for all arguments") {
  const auto f = [](const Tensor& a, const Tensor& b, double by) {
    return psum(a, "batch") + by * b;
  };
  const Tensor a = at::arange(3.0);
  const Tensor b = at::ones({3});
  const Tensor expected = 3 + 2 * b;
  CHECK(pmap(f, "batch")(a, b, 2.0).equal(expected));
  CHECK(vmap(f, std::string("batch"))(a, b, 2.0).equal(expected));
  CHECK(pmap(f, "batch", {.in_axes = 0, .out_axes = 0})(a, b, 2.0).equal(expected));
  CHECK(shard_map(f, Mesh({{"batch", 3}}), P("batch"), P("batch"))(a, b, 2.0).equal(expected));
  const Tensor rows = at::arange(6.0).view({2, 3});
  const auto add = [](const Tensor& x, const Tensor& y) { return x + y; };
  CHECK(pmap(add, {.in_axes = 1, .out_axes = 1})(rows, rows).equal(2 * rows));
  CHECK(pmap(add, {.in_axes = std::nullopt, .axis_size = 2})(rows, rows)[1].equal(2 * rows));
}

TEST_CASE("what is said of single leaves is built like the argument's tree") {
  const Tensor w = at::arange(6.0).view({2, 3});
  const Tensor b = at::arange(2.0);
  const auto f = [](const Tensor& x, const Tensor& y) { return x.sum() + 0 * x + y; };
  const Tensor by_column = (w.sum(0, true) + 0 * w + b.view({2, 1})).t();
  const auto of_pair = [&](const std::pair<Tensor, Tensor>& both) {
    return f(both.first, both.second);
  };
  CHECK(pmap(of_pair, {.in_axes = {{1, std::nullopt}}})(std::pair(w, b)).equal(by_column));
  CHECK(vmap(of_pair, {.in_axes = {std::pair(1, std::nullopt)}})(std::pair(w, b)).equal(by_column));
  const auto of_struct = [&](const Attention& own) { return f(own.weight, own.bias); };
  for (const InAxes& axes :
       {InAxes{{1, none, none}}, InAxes{{{"weight", 1}, {"bias", none}, {"heads", none}}},
        InAxes{{{"heads", none}, {"bias", none}, {"weight", 1}}}}) {
    CHECK(pmap(of_struct, {.in_axes = axes})(Attention{w, b, 2}).equal(by_column));
  }
  const auto each = {1, 0};
  CHECK(pmap(f, {.in_axes = each})(w, at::stack({b, b, b})).equal(by_column));
  using Named = std::map<std::string, Tensor>;
  const auto of_map = [&](const Named& own) { return f(own.at("w"), own.at("b")); };
  const Named named{{"w", w}, {"b", b}};
  CHECK(pmap(of_map, {.in_axes = {{{"w", 1}, {"b", std::nullopt}}}})(named).equal(by_column));
  const std::map<std::string, std::optional<std::int64_t>> axes{{"b", std::nullopt}, {"w", 1}};
  CHECK(pmap(of_map, {.in_axes = {axes}})(named).equal(by_column));
  const auto columns = [&](const Named& own) { return f(own.at("w"), own.at("b").view({2, 1})); };
  CHECK(
      shard_map(columns, Mesh({{"i", 3}}), {{{"w", P(none, "i")}, {"b", P()}}}, P(none, "i"))(named)
          .equal(w.sum(0, true) + 0 * w + b.view({2, 1})));
}

TEST_CASE("results have axes and specs for their single leaves, too") {
  const Tensor x = at::arange(6.0).view({3, 2});
  const auto f = [](const Tensor& row) {
    return std::pair(Attention{row, psum(row, "i"), 3}, std::vector<Tensor>{row, 2 * row});
  };
  const auto [layer, list] = pmap(f, {.out_axes = {{0, std::nullopt, std::nullopt}, {0, 1}}})(x);
  CHECK(layer.weight.equal(x));
  CHECK(layer.bias.equal(x.sum(0)));
  CHECK(list[0].equal(x));
  CHECK(list[1].equal(2 * x.t()));
  const auto [named, others] =
      shard_map(f, Mesh({{"i", 3}}), P("i"),
                {{{"bias", P()}, {"weight", P("i")}, {"heads", P()}}, P("i")})(x);
  CHECK(named.weight.equal(x));
  CHECK(named.bias.equal(x.sum(0, true)));
  const auto [sharded, rows] =
      shard_map(f, Mesh({{"i", 3}}), P("i"), {{P("i"), P(), P()}, {P("i"), P(none, "i")}})(x);
  CHECK(sharded.weight.equal(x));
  CHECK(sharded.bias.equal(x.sum(0, true)));
  CHECK(rows[1].equal(2 * x.view({1, 6})));
  // A result that is no tuple has parts, too.
  const auto parts = [](const Tensor& row) { return std::vector<Tensor>{row, psum(row, "i")}; };
  CHECK(pmap(parts, {.out_axes = {0, std::nullopt}})(x)[1].equal(x.sum(0)));
}

TEST_CASE("what does not fit the tree is refused, with the place and the call site") {
  const Tensor x = at::ones({2, 2});
  const auto first = [](const auto& tree) { return tree_leaves(tree)[0]; };
  const auto told = [&](const InAxes& in_axes, const auto& tree) {
    return refusal([&] { (void)pmap(first, {.in_axes = in_axes})(tree); });
  };
  const std::string title = "pmap over 'i' (map_trees_test.cpp): in_axes: argument 0";
  CHECK(told({{0, 0, 0}}, std::pair(x, x)) == title + " has 2 parts, its entry 3");
  CHECK(told({{0, {0, 0}}}, std::pair(x, x)) == title + ".1 is one value, its entry has 2 parts");
  CHECK(told({{0, 0}}, std::pair(x, 3)) ==
        title + ".1 is no tree of tensors: its entry must be none (P() in shard_map)");
  const std::map<std::string, Tensor> named{{"w", x}};
  CHECK(told({{{"b", 0}}}, named) == title + " has the key 'w', its entry has not");
  CHECK(told({{0, 0}}, named) == title + " is a map: its entries have keys, {{\"key\", entry}, …}");
  CHECK(told({{{"b", 0}, {"w", 0}}}, std::pair(x, x)) ==
        title + " is no map: its entries have no keys");
  const Attention layer{x, x, 2};
  const std::string members = ": its members are weight, bias, heads";
  CHECK(told({{{"weight", 0}, {"bais", 0}, {"heads", none}}}, layer) ==
        title + " has no 'bais'" + members);
  CHECK(told({{{"weight", 0}, {"heads", none}}}, layer) ==
        title + " has no entry for 'bias'" + members);
  CHECK(told({{{"weight", 0}, {"weight", 0}, {"heads", none}}}, layer) ==
        title + " has two entries for 'weight'");
  CHECK(refusal([&] {
          (void)pmap(first, {.in_axes = {{"w", 0}}})(named);
        }) == "pmap over 'i' (map_trees_test.cpp): in_axes has 1 named entry for 1 argument");
  CHECK(refusal([&] {
          (void)pmap([](const Tensor& y) { return std::pair(y, y); }, {.out_axes = {0, 0, 0}})(x);
        }) == "pmap over 'i' (map_trees_test.cpp): out_axes has 3 entries for 2 results");
  CHECK(refusal([&] { (void)pmap([](const Tensor& y) { return y; }, {.out_axes = {}})(x); }) ==
        "pmap over 'i' (map_trees_test.cpp): out_axes has 0 entries for 1 result");
  CHECK(refusal([&] {
          (void)pmap([](const Tensor& y, const Tensor&) { return y; }, {.in_axes = {{}, 0}})(x, x);
        }) ==
        "pmap over 'i' (map_trees_test.cpp): in_axes: argument 0 has an empty entry; to "
        "leave it whole write none (P() in shard_map)");
  CHECK(refusal([&] {
          (void)shard_map(first, Mesh({{"i", 2}}), {{P("i"), P("j")}}, P())(std::pair(x, x));
        }) ==
        "shard_map over 'i' (map_trees_test.cpp): in_specs: the spec P('j') names axis 'j', which "
        "the mesh {'i': 2} has not");
}
