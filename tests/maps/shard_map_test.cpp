#include "framework/maps/shard_map.h"

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/mesh.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/tree/tree.h"
#include "tests/catch.h"
#include "tests/collectives/refused.h"

using namespace lockstep;
using lockstep::testing::refusal;

namespace {

struct Parameters {
  Tensor weight, bias;
};
LOCKSTEP_TREE(Parameters, weight, bias)

Mesh two_by_three() {
  return Mesh({{"data", 2}, {"model", 3}});
}

Tensor same(const Tensor& x) {
  return x;
}

// Returns the block of each replica of two_by_three, along two leading dimensions.
Tensor blocks_of(const Tensor& x, const PartitionSpec& spec) {
  const auto gather = [](const Tensor& block) {
    return all_gather(block, {"data", "model"}).unflatten(0, {2, 3});
  };
  return shard_map(gather, two_by_three(), {spec}, P())(x);
}

}  // namespace

TEST_CASE("a spec says which block of an argument each replica gets") {
  const Tensor x = at::arange(72).view({6, 12});
  const auto rows = [&](std::int64_t begin, std::int64_t count) {
    return x.narrow(0, begin, count);
  };
  const auto check = [&](const PartitionSpec& spec, const auto& block) {
    const Tensor found = blocks_of(x, spec);
    for (std::int64_t d = 0; d < 2; ++d) {
      for (std::int64_t m = 0; m < 3; ++m) CHECK(found[d][m].equal(block(d, m)));
    }
  };
  using Index = std::int64_t;
  check(P(), [&](Index, Index) { return x; });
  check(P("data"), [&](Index d, Index) { return rows(3 * d, 3); });
  check(P(none, "model"), [&](Index, Index m) { return x.narrow(1, 4 * m, 4); });
  check(P("model", "data"), [&](Index d, Index m) { return rows(2 * m, 2).narrow(1, 6 * d, 6); });
  check(P({"data", "model"}), [&](Index d, Index m) { return rows(3 * d + m, 1); });
  check(P({"model", "data"}), [&](Index d, Index m) { return rows(2 * m + d, 1); });
  check(P(none, {"data", "model"}),
        [&](Index d, Index m) { return x.narrow(1, 2 * (3 * d + m), 2); });
  check(P(none, none), [&](Index, Index) { return x; });
}

TEST_CASE("a spec is written in several ways") {
  const std::vector<std::string> no_axes;
  CHECK(P().empty());
  CHECK(P("data") == PartitionSpec{{"data"}});
  CHECK(P(std::nullopt, "model") == PartitionSpec{no_axes, {"model"}});
  CHECK(P(none, "model") == P(std::nullopt, "model"));
  CHECK(P({}, "model") == P(none, "model"));
  CHECK(P(std::string("data"), std::vector<std::string>{"a", "b"}) == P("data", {"a", "b"}));
  CHECK(P(none, none, none, none, none, "f") ==
        PartitionSpec{no_axes, no_axes, no_axes, no_axes, no_axes, {"f"}});
  CHECK(P(none) == PartitionSpec{no_axes});
}

TEST_CASE("what a spec cuts the same out spec joins again") {
  const Tensor x = at::arange(6 * 12 * 2).view({6, 12, 2});
  for (const PartitionSpec& spec :
       {P(), P("data"), P(none, "model"), P("model", "data"), P({"data", "model"}),
        P({"model", "data"}), P(none, {"model", "data"}), P("data", "model"), P(none, none)}) {
    CHECK(shard_map(same, two_by_three(), {spec}, spec)(x).equal(x));
  }
  // Blocks that are cut along one dimension and joined along another move.
  const Tensor y = at::arange(6).view({6, 1});
  CHECK(shard_map(same, Mesh({{"data", 3}}), {P("data")}, P(none, "data"))(y).equal(
      y.view({3, 2}).t()));
}

TEST_CASE("one out spec serves all results, or each element has one") {
  const Tensor x = at::arange(12, at::kDouble).view({6, 2});
  const auto f = [](const Tensor& block) {
    return std::tuple(2 * block, psum(block.sum(), {"data", "model"}));
  };
  const auto [twice, sum] =
      shard_map(f, two_by_three(), {P({"data", "model"})}, {P({"data", "model"}), P()})(x);
  CHECK(twice.equal(2 * x));
  CHECK(sum.item().toDouble() == 66);
  const auto both = [](const Tensor& block) { return std::tuple(block, block + 1); };
  const auto [first, second] = shard_map(both, two_by_three(), {P("model")}, P("model"))(x);
  CHECK(first.equal(x));
  CHECK(second.equal(x + 1));
}

TEST_CASE("a spec goes for all leaves of a tree; what is no tree is static") {
  const auto f = [](const Parameters& p, double scale, const std::string& word) {
    return std::map<std::string, Tensor>{{word, p.weight * scale + p.bias}};
  };
  const Parameters p{at::ones({4, 2}), at::arange(4.0).view({4, 1})};
  const auto result =
      shard_map(f, Mesh({{"data", 4}}), {P("data"), P(), P()}, P("data"))(p, 3.0, std::string("y"));
  REQUIRE(result.count("y") == 1);
  CHECK(result.at("y").equal(p.weight * 3.0 + p.bias));
}

TEST_CASE("replicas of a mesh are counted row-major and reach each axis, or both as one") {
  const auto f = [] {
    return at::tensor(
               {axis_index("data"), axis_index("model"), axis_index({"data", "model"}),
                axis_index({"model", "data"}), axis_size("model"), axis_size({"data", "model"})},
               at::kLong)
        .view({1, 6});
  };
  const Tensor found = shard_map(f, two_by_three(), {}, P({"data", "model"}))();
  const Tensor expected = at::tensor({0, 0, 0, 0, 3, 6, 0, 1, 1, 2, 3, 6, 0, 2, 2, 4, 3, 6,
                                      1, 0, 3, 1, 3, 6, 1, 1, 4, 3, 3, 6, 1, 2, 5, 5, 3, 6},
                                     at::kLong)
                              .view({6, 6});
  CHECK(found.equal(expected));
}

TEST_CASE("lengths of zero are cut and joined") {
  const Tensor empty = at::zeros({0, 4});
  CHECK(shard_map(same, Mesh({{"data", 2}}), {P("data")}, P("data"))(empty).sizes() ==
        at::IntArrayRef({0, 4}));
  CHECK(shard_map(same, Mesh({{"data", 2}}), {P(none, "data")}, P(none, "data"))(empty).sizes() ==
        at::IntArrayRef({0, 4}));
}

TEST_CASE("shard_map_psum: the sum over all blocks is 6") {
  const Tensor y = at::tensor({1.0, 2.0, 3.0});
  const auto sum = [](const Tensor& block) { return psum(block.sum(), "data"); };
  for (const std::int64_t replicas : {1, 3}) {
    const Tensor result = shard_map(sum, Mesh({{"data", replicas}}), {P("data")}, P())(y);
    CHECK(result.equal(at::tensor(6.0).squeeze()));
  }
}

TEST_CASE("the four pitfalls of shard_map_psum end in errors that say what is wrong") {
  const std::string title = "shard_map over 'data' (shard_map_test.cpp): ";
  const Tensor y = at::tensor({1.0, 2.0, 3.0});
  const auto sum = [](const Tensor& block) { return psum(block.sum(), "data"); };
  const auto forgotten = [](const Tensor& block) { return block.sum(); };

  SECTION("the function called outside of the map: its axis is not bound") {
    CHECK_THROWS_AS(sum(y), NameError);
    CHECK_THROWS_WITH(sum(y), ContainsSubstring("psum") && ContainsSubstring("'data'"));
    const auto other = shard_map(sum, Mesh({{"batch", 3}}), {P("batch")}, P());
    CHECK_THROWS_AS(other(y), NameError);
    CHECK_THROWS_WITH(other(y), ContainsSubstring("'data'") && ContainsSubstring("'batch'"));
  }
  SECTION("a psum forgotten: the replicas' sums differ, and the spec says that they do not") {
    CHECK_THAT(refusal([&] {
                 (void)shard_map(forgotten, Mesh({{"data", 3}}), {P("data")}, P())(y);
               }),
               ContainsSubstring(
                   title + "result 0 differs along 'data': index 1 has another value than index 0, "
                           "and its out spec does not name this axis. Is a psum missing?"));
    // A single replica can't differ from another.
    CHECK(shard_map(forgotten, Mesh({{"data", 1}}), {P("data")}, P())(y).item().toDouble() == 6);
  }
  SECTION("a length that does not divide") {
    CHECK(refusal([&] {
            (void)shard_map(sum, Mesh({{"data", 2}}), {P("data")}, P())(y);
          }) == title +
                    "leaf 0 of argument 0 has shape [3]; its spec P('data') cuts dimension 0 into "
                    "2 blocks, which must divide 3");
  }
  SECTION("an out spec longer than the result") {
    for (const std::int64_t replicas : {1, 3}) {
      CHECK(refusal([&] {
              (void)shard_map(sum, Mesh({{"data", replicas}}), {P("data")}, P("data"))(y);
            }) == title + "result 0 of replica " + std::to_string(replicas - 1) +
                      " has shape [], but its spec P('data') has 1 dimension");
    }
  }
}

TEST_CASE("a difference names the result, the leaf and the axes, and can be let pass") {
  const Tensor x = at::arange(6.0).view({2, 3});
  const auto f = [](const Tensor& block) {
    return std::tuple(psum(block, {"data", "model"}),
                      Parameters{psum(block, {"data", "model"}), psum(block, "data")});
  };
  const auto mapped = [&](OutSpecs specs, bool check) {
    return shard_map(f, two_by_three(), {P("data", "model")}, specs,
                     {.check_replicated = check})(x);
  };
  CHECK_THROWS_WITH(
      mapped({P(), P()}, true),
      ContainsSubstring("shard_map over ('data', 'model') (shard_map_test.cpp:") &&
          ContainsSubstring("): result 1, leaf 1, differs along ('data', 'model')") &&
          ContainsSubstring("its out spec does not name these axes. Is a psum missing?"));
  // Without the check, the first replica's result is taken.
  const auto [sum, parts] = mapped({P(), P()}, false);
  CHECK(sum.equal(at::full({1, 1}, 15.0)));
  CHECK(parts.bias.equal(at::full({1, 1}, 3.0)));
  // The sum over "data" is the same along that axis alone.
  const auto [again, right] = mapped({P(), P(none, "model")}, true);
  CHECK(again.equal(sum));
  CHECK(right.bias.equal(at::tensor({3.0, 5.0, 7.0}).view({1, 3})));
}

TEST_CASE("a replicated result that is built or shaped differently is told with the shapes") {
  const auto told = [](const auto& f) {
    return refusal([&] {
      (void)shard_map(f, Mesh({{"data", 3}}), {P("data")}, P())(at::ones({3, 2}));
    });
  };
  const auto leaves_at = [](std::int64_t odd, std::size_t count) {
    return [=](const Tensor& x) {
      return std::vector<Tensor>(axis_index("data") == odd ? count : 1, x);
    };
  };
  const std::string title = "shard_map over 'data' (shard_map_test.cpp): ";
  const std::string rule = "; its out spec does not name this axis";
  CHECK_THAT(
      told(leaves_at(2, 2)),
      ContainsSubstring(title +
                        "result 0 differs along 'data': it has 1 leaf at index 0 and 2 at index 2" +
                        rule));
  CHECK_THAT(told(leaves_at(1, 0)), ContainsSubstring("1 leaf at index 0 and 0 at index 1" + rule));
  CHECK_THAT(
      told([](const Tensor& x) { return axis_index("data") == 1 ? x.flatten() : x; }),
      ContainsSubstring(
          title +
          "result 0 differs along 'data': it is [1, 2] Float at index 0 and [2] Float at index 1" +
          rule));
  CHECK_THAT(told([](const Tensor& x) {
               std::vector<Tensor> tree(100, x);
               if (axis_index("data") == 2) tree[70] = x.to(at::kDouble);
               return tree;
             }),
             ContainsSubstring(title +
                               "result 0, leaf 70, differs along 'data': it is [1, 2] Float at "
                               "index 0 and [1, 2] Double at index 2" +
                               rule));
  CHECK_THAT(told([](const Tensor&) { return Tensor(); }),
             ContainsSubstring(title + "result 0 is an undefined tensor"));
  CHECK_THAT(told([](const Tensor& x) {
               return std::vector<Tensor>{x, Tensor()};
             }),
             ContainsSubstring(title + "result 0, leaf 1, is an undefined tensor"));
}

TEST_CASE("specs that do not fit are refused, with the mesh and the numbers") {
  const Tensor x = at::ones({6, 5});
  const std::string title = "shard_map over ('data', 'model') (shard_map_test.cpp): ";
  const auto call = [&](const PartitionSpec& in, const OutSpecs& out) {
    return refusal([&] { (void)shard_map(same, two_by_three(), {in}, out)(x); });
  };
  CHECK(call(P("batch"), P()) == title +
                                     "in_specs: the spec P('batch') names axis 'batch', which the "
                                     "mesh {'data': 2, 'model': 3} has not");
  CHECK(call(P(), P(none, "batch")) ==
        title +
            "out_specs: the spec P(none, 'batch') names axis 'batch', which the mesh {'data': 2, "
            "'model': 3} has not");
  CHECK(call(P("data", "data"), P()) ==
        title + "in_specs: the spec P('data', 'data') names axis 'data' twice");
  CHECK(call(P({"model", "model"}), P()) ==
        title + "in_specs: the spec P(('model', 'model')) names axis 'model' twice");
  CHECK(call(P("data", {"model", "data"}), P()) ==
        title + "in_specs: the spec P('data', ('model', 'data')) names axis 'data' twice");
  CHECK(call(P(none, "model"), P()) ==
        title +
            "leaf 0 of argument 0 has shape [6, 5]; its spec P(none, 'model') cuts dimension 1 "
            "into 3 blocks, which must divide 5");
  CHECK(call(P(none, {"data", "model"}), P()) ==
        title +
            "leaf 0 of argument 0 has shape [6, 5]; its spec P(none, ('data', 'model')) cuts "
            "dimension 1 into 6 blocks, which must divide 5");
  CHECK(call(P("data", none, "model"), P()) ==
        title +
            "leaf 0 of argument 0 has shape [6, 5], but its spec P('data', none, 'model') has 3 "
            "dimensions");
  CHECK_THAT(call(P(), {P(), P()}),
             ContainsSubstring(title + "out_specs: result 0 is one value, its entry has 2 parts"));
  CHECK(refusal([&] {
          (void)shard_map(same, two_by_three(), {P(), P()}, P())(x);
        }) == title + "in_specs has 2 entries for 1 argument");
  CHECK(refusal([&] { (void)shard_map(same, two_by_three(), {}, P())(x); }) ==
        title + "in_specs has 0 entries for 1 argument");
  CHECK(refusal([&] {
          (void)shard_map(same, two_by_three(), P(), {}, {.check_replicated = false})(x);
        }) == title + "out_specs has 0 entries for 1 result");
  CHECK(refusal([&] { (void)shard_map([](int) {}, two_by_three(), {P("data")}, P())(3); }) ==
        title +
            "in_specs: argument 0 is no tree of tensors: its entry must be none (P() in "
            "shard_map)");
  CHECK(refusal([&] { (void)shard_map(same, two_by_three(), {P()}, P())(Tensor()); }) ==
        title + "leaf 0 of argument 0 is an undefined tensor");
  const auto uneven = [](const Tensor&) { return at::ones({1 + axis_index("data")}); };
  CHECK(refusal([&] {
          (void)shard_map(uneven, Mesh({{"data", 2}}), {P()}, P("data"))(x);
        }) ==
        "shard_map over 'data' (shard_map_test.cpp): result 0 is [1] Float on replica 0 and [2] "
        "Float on replica 1");
}

TEST_CASE("a mesh needs axes, names that differ and positive sizes") {
  CHECK_THROWS_AS(Mesh(Mesh::Axes{}), ValueError);
  CHECK_THROWS_WITH(Mesh({{"data", 2}, {"data", 3}}), ContainsSubstring("'data'"));
  CHECK_THROWS_WITH(Mesh({{"data", 0}}), ContainsSubstring("'data'") && ContainsSubstring("0"));
  CHECK_THROWS_WITH(Mesh({{"data", 2}, {"model", -1}}),
                    ContainsSubstring("'model'") && ContainsSubstring("-1"));
  CHECK_THROWS_AS(Mesh({{"", 2}}), ValueError);
  CHECK(two_by_three().size() == 6);
}

TEST_CASE("an error of a replica comes out with its index, also where others wait") {
  const auto f = [](const Tensor& x) {
    if (axis_index("data") == 1 && axis_index("model") == 2) throw DataError("file is damaged");
    return psum(x, {"data", "model"});
  };
  CHECK_THROWS_AS(shard_map(f, two_by_three(), {P()}, P())(at::ones({2})), DataError);
  CHECK_THROWS_WITH(shard_map(f, two_by_three(), {P()}, P())(at::ones({2})),
                    "replica 5: file is damaged");
}

TEST_CASE("meshes nest with maps and with each other, and reach outer axes") {
  const Tensor x = at::arange(24, at::kDouble).view({2, 4, 3});
  const Tensor sums = x.sum();
  const auto over_all = [](const Tensor& block) {
    return psum(block.sum(), {"outer", "data"}) + 0 * block;
  };
  const auto inner = shard_map(over_all, Mesh({{"data", 2}}), {P("data")}, P("data"));
  const Tensor expected = sums.expand({2, 4, 3});
  CHECK(pmap(inner, {.axis_name = "outer"})(x).equal(expected));
  CHECK(vmap(inner, {.axis_name = "outer"})(x).equal(expected));
  const auto in_mesh = [&](const Tensor& block) { return inner(block[0]).unsqueeze(0); };
  CHECK(shard_map(in_mesh, Mesh({{"outer", 2}}), {P("outer")}, P("outer"))(x).equal(expected));

  const auto lanes = [](const Tensor& block) {
    return vmap(
        [](const Tensor& row) {
          return psum(row, {"data", "lane"}) + 0 * row;
        },
        {.axis_name = "lane"})(block);
  };
  CHECK(shard_map(lanes, Mesh({{"data", 2}}), {P(none, "data")}, P(none, "data"))(x[0].t()).equal(
      x[0].t()
          .unflatten(1, {2, 2})
          .sum(std::vector<std::int64_t>{0, 1})
          .expand({3, 2})
          .repeat({1, 2})));

  const auto again = [&](const Tensor& block) {
    return shard_map(same, Mesh({{"outer", 2}}), {P()}, P())(block);
  };
  CHECK_THROWS_WITH(pmap(again, {.axis_name = "outer"})(x),
                    ContainsSubstring("axis 'outer' is bound already by a map around it (bound: "
                                      "'outer'); nested axes need different names"));
}
