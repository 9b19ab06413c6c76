// Derivatives taken outside of maps.

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
#include "tests/catch.h"
#include "tests/collectives/refused.h"
#include "tests/maps/slopes.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Layer {
  Tensor weight, bias;
};
LOCKSTEP_TREE(Layer, weight, bias)

}  // namespace

TEST_CASE("nested maps are differentiated from outside") {
  // x is (2, 3, 4); the inner function captures the outer function's argument and a tensor from
  // outside of both, and reaches both axes.
  const auto inner = [](const Tensor& row, const Tensor& of_outer, const Tensor& captured) {
    const Tensor y = row * of_outer + captured;
    return psum(y * y, {"outer", "inner"}) * row + pmean(y, "inner") * psum(y, "outer");
  };
  const Loss serial = [](const Tensors& x) {
    const Tensor y = x[0] * x[1].unsqueeze(1) + x[2];
    return weighed((y * y).sum(std::vector<std::int64_t>{0, 1}) * x[0] +
                   y.mean(1, true) * y.sum(0, true));
  };
  const Tensors x{normal("x", {2, 3, 4}), normal("o", {2, 4}), normal("c", {4})};
  const auto loss_by = [&](const auto& outer_map, const auto& inner_map) -> Loss {
    return [&](const Tensors& at) {
      return weighed(outer_map(
          [&](const Tensor& rows, const Tensor& of_outer) {
            return inner_map([&](const Tensor& row) { return inner(row, of_outer, at[2]); }, rows);
          },
          at[0], at[1]));
    };
  };
  const auto by_pmap = [](const auto& f, const Tensor& a, const Tensor& b) {
    return pmap(f, {.axis_name = "outer"})(a, b);
  };
  const auto by_vmap = [](const auto& f, const Tensor& a, const Tensor& b) {
    return vmap(f, {.axis_name = "outer"})(a, b);
  };
  const auto inner_pmap = [](const auto& f, const Tensor& a) {
    return pmap(f, {.axis_name = "inner"})(a);
  };
  const auto inner_vmap = [](const auto& f, const Tensor& a) {
    return vmap(f, {.axis_name = "inner"})(a);
  };
  SECTION("pmap in pmap") {
    check_loss(loss_by(by_pmap, inner_pmap), serial, x);
  }
  SECTION("vmap in pmap") {
    check_loss(loss_by(by_pmap, inner_vmap), serial, x);
  }
  SECTION("vmap in vmap") {
    check_loss(loss_by(by_vmap, inner_vmap), serial, x);
  }
}

TEST_CASE("a shard_map over two axes is differentiated from outside") {
  // x (4, 6) in blocks of both axes, w (6, 2) in rows: each block's product is a part of the sum.
  const Loss loss = [](const Tensors& x) {
    const auto f = [](const Tensor& block, const Tensor& rows, const Tensor& bias) {
      return psum(block.matmul(rows), "model") + bias;
    };
    return weighed(shard_map(f, Mesh({{"data", 2}, {"model", 3}}),
                             {P("data", "model"), P("model"), P()}, P("data"))(x[0], x[1], x[2]));
  };
  const Loss serial = [](const Tensors& x) { return weighed(x[0].matmul(x[1]) + x[2]); };
  const Tensors x{normal("x", {4, 6}), normal("w", {6, 2}), normal("b", {2})};
  // A replicated result is taken from the first replica along "model"; psum's backward is a psum,
  // so that every block of w and x gets its part; the bias is added once for each data index.
  check_loss(loss, serial, x);
}

TEST_CASE("the gradient of a mean loss by broadcast parameters is the whole batch's") {
  const Tensor xs = normal("x", {4, 2, 3});
  const Tensor ys = normal("y", {4, 2});
  const auto loss_of = [](const Layer& layer, const Tensor& x, const Tensor& y) {
    const Tensor error = x.matmul(layer.weight) + layer.bias - y;
    return (error * error).mean();
  };
  const Layer layer{normal("w", {3}), normal("b", {})};
  const Layer serial = grad(loss_of)(layer, xs.flatten(0, 1), ys.flatten());

  SECTION("grad outside: of the mean over the replicas, and of what pmean gives to one") {
    const auto mean = [&](const Layer& at) {
      return pmap(loss_of, {.in_axes = {std::nullopt, 0, 0}})(at, xs, ys).mean();
    };
    const auto first = [&](const Layer& at) {
      const auto f = [&](const Layer& own, const Tensor& x, const Tensor& y) {
        return pmean(loss_of(own, x, y), "i");
      };
      return pmap(f, {.in_axes = {std::nullopt, 0, 0}, .out_axes = std::nullopt})(at, xs, ys);
    };
    check_same(tree_leaves(grad(mean)(layer)), tree_leaves(serial));
    check_same(tree_leaves(grad(first)(layer)), tree_leaves(serial));
  }
  SECTION("grad inside, then pmean") {
    const auto step = [&](const Layer& own, const Tensor& x, const Tensor& y) {
      return pmean(grad(loss_of)(own, x, y), "i");
    };
    const Layer inside =
        pmap(step, {.in_axes = {std::nullopt, 0, 0}, .out_axes = std::nullopt})(layer, xs, ys);
    check_same(tree_leaves(inside), tree_leaves(serial));
  }
}

TEST_CASE("a step of training inside a map is differentiated from outside") {
  const Tensor xs = normal("x", {3, 4});
  const auto after_step = [](const Tensor& rate, const Tensor& w, const Tensor& x) {
    const auto loss_of = [&](const Tensor& at) { return (at * x).sin().sum(); };
    const Tensor stepped = w - rate * pmean(grad(loss_of)(w), "i");
    return loss_of(stepped);
  };
  const Loss loss = [&](const Tensors& at) {
    return pmap(after_step, {.in_axes = {std::nullopt, std::nullopt, 0}})(at[0], at[1], xs).sum();
  };
  const Loss serial = [&](const Tensors& at) {
    const Tensor gradient = (xs * (at[1] * xs).cos()).mean(0);
    return ((at[1] - at[0] * gradient) * xs).sin().sum();
  };
  check_loss(loss, serial, {normal("rate", {}), normal("w", {4})});
}

TEST_CASE("parameters that the function captures gather their gradients like a module's") {
  Layer layer{normal("w", {3}).requires_grad_(), normal("b", {}).requires_grad_()};
  const Tensor xs = normal("x", {4, 3});
  const auto forward = [&](const Tensor& x) { return x.dot(layer.weight) + layer.bias; };
  pmap(forward)(xs).sum().backward();
  check_same({layer.weight.grad(), layer.bias.grad()}, {xs.sum(0), at::full({}, 4.0, at::kDouble)});
  // A second map adds to the first one's gradients.
  vmap(forward)(xs).sum().backward();
  check_same({layer.weight.grad(), layer.bias.grad()},
             {2 * xs.sum(0), at::full({}, 8.0, at::kDouble)});
}

TEST_CASE("a tensor that is both argument and captured, or captured by some, adds up") {
  const Tensor c = normal("c", {2}).requires_grad_();
  pmap([&](const Tensor& x) { return axis_index("i") == 1 ? x * c : x; },
       {.in_axes = {std::nullopt}, .axis_size = 3})(c)
      .sum()
      .backward();
  CHECK(at::allclose(c.grad(), 2 + 2 * c.detach()));
}

TEST_CASE("an inner map captures the outer function's argument and what a collective made of it") {
  const auto f = [](const Tensor& c) {
    const Tensor sum = psum(c, "outer");
    const auto inner = [&](const Tensor& x) { return x * (c + sum); };
    return pmap(inner, {.axis_name = "inner"})(at::ones({2}, at::kDouble)).sum();
  };
  const auto loss = [&](const Tensor& c) { return pmap(f, {.axis_name = "outer"})(c).sum(); };
  // Two inner replicas add up c + sum; sum goes to each of the two outer ones.
  CHECK(grad(loss)(at::ones({2}, at::kDouble)).equal(at::full({2}, 6.0, at::kDouble)));
}

TEST_CASE("the gradient through out_axes std::nullopt is that of replica 0's result") {
  const auto to_one = [](const auto& f) {
    return [=](const Tensor& x) { return pmap(f, {.out_axes = std::nullopt})(x).sum(); };
  };
  const Tensor x = normal("x", {3, 2});
  const auto own = to_one([](const Tensor& part) { return part * part; });
  const Tensor expected = at::zeros_like(x);
  expected[0].copy_(2 * x[0]);
  CHECK(grad(own)(x).equal(expected));
  const auto reduced = to_one([](const Tensor& part) { return psum(part * part, "i"); });
  CHECK(at::allclose(grad(reduced)(x), 2 * x));
}

TEST_CASE("results without a gradient, or of which the loss uses none, leave the rest alone") {
  const auto f = [](const Tensor& x) {
    return std::tuple(psum(x, "i"), at::full({}, axis_index("i"), at::kLong), x * x);
  };
  const Tensor x = normal("x", {3, 2}).requires_grad_();
  const auto [sums, indices, squares] = pmap(f)(x);
  CHECK(!indices.requires_grad());
  CHECK(indices.equal(at::arange(3)));
  squares[1].sum().backward();  // nothing comes back through psum, nor to replicas 0 and 2
  const Tensor expected = at::zeros({3, 2}, at::kDouble);
  expected[1].copy_(2 * x.detach()[1]);
  CHECK(x.grad().equal(expected));
  CHECK(sums.requires_grad());
}

TEST_CASE("a map's graph runs again while it is kept") {
  const Tensor x = normal("x", {3, 2}).requires_grad_();
  const auto f = [](const Tensor& part) { return psum(part * part, "i") * part; };
  const Tensor loss = pmap(f)(x).sum();
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  loss.backward();
  CHECK(x.grad().equal(2 * once));
  CHECK_THROWS_WITH(loss.backward(),
                    ContainsSubstring("the backward of pmap over 'i' ran before; keep its graph "
                                      "(retain_graph) to run it again"));
  CHECK(x.grad().equal(2 * once));
}

TEST_CASE("a backward that fails in one replica ends the call with its error") {
  const Tensor x = normal("x", {3, 2}).requires_grad_();
  const auto f = [](const Tensor& part) {
    const Tensor doubled = 2 * part;
    if (axis_index("i") == 1) {
      doubled.register_hook([](const Tensor&) -> Tensor { throw DataError("bad gradient"); });
    }
    return psum(doubled * part, "i");
  };
  const Tensor loss = pmap(f)(x).sum();
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("replica 1: bad gradient"));
}

TEST_CASE("complex tensors that require a gradient are refused, as arguments and as results") {
  const Tensor z = at::ones({2, 3}, at::kComplexDouble).requires_grad_();
  const Tensor x = at::ones({2, 3}, at::kDouble).requires_grad_();
  const auto same = [](const Tensor& part) { return part; };
  const auto to_complex = [](const Tensor& part) { return part.to(at::kComplexDouble); };
  const std::string rule =
      "ComplexDouble and requires a gradient; maps are differentiated in real numbers: use "
      "view_as_real";
  for (const InAxes& in_axes : {InAxes{0}, InAxes{std::nullopt}}) {
    CHECK(refusal([&] { (void)pmap(same, {.in_axes = in_axes, .axis_size = 2})(z); }) ==
          "pmap over 'i' (map_grad_test.cpp): leaf 0 of argument 0 is " + rule);
  }
  CHECK(refusal([&] {
          (void)shard_map(same, Mesh({{"i", 2}}), {P("i")}, P("i"))(z);
        }) == "shard_map over 'i' (map_grad_test.cpp): leaf 0 of argument 0 is " + rule);
  CHECK_THAT(message_of<ValueError>([&] { (void)vmap(to_complex)(x); }),
             ContainsSubstring("vmap over 'i' at map_grad_test.cpp:") &&
                 ContainsSubstring(": leaf 0 of the result is " + rule));
  // Complex results without a gradient pass, and so do complex numbers in between.
  CHECK(pmap(same)(z.detach()).equal(z.detach()));
  const auto squared = [&](const Tensor& part) {
    return (to_complex(part) * to_complex(part)).abs();
  };
  CHECK(at::allclose(grad([&](const Tensor& at) { return pmap(squared)(at).sum(); })(x.detach()),
                     2 * x.detach()));
}
