// The derivative of every operator, taken outside of the map that it runs in.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
#include "tests/catch.h"
#include "tests/maps/slopes.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Operation = std::function<Tensor(const Tensor&)>;

struct Example {
  std::string name;
  Operation operation;  // in each of three replicas, on (3, 2)
  Operation serial;     // on the replicas' tensors, stacked
};

Tensor same_everywhere(const Tensor& x) {
  return x.unsqueeze(0).expand({3, x.size(0), x.size(1)});
}

// Sends row j of each replica's x to replica j, which puts replica k's row in row k.
Tensor exchange_rows(const Tensor& x) {
  const Tensor ones = at::ones({3}, at::kLong);
  return ragged_all_to_all(x, at::zeros_like(x), at::arange(3), ones,
                           at::full({3}, axis_index("i"), at::kLong), ones, "i");
}

std::vector<Example> examples() {
  const auto turned = [](const Tensor& x) { return x.transpose(0, 1); };
  return {
      {"psum", [](const Tensor& x) { return psum(x, "i"); },
       [](const Tensor& x) { return same_everywhere(x.sum(0)); }},
      {"psum in groups",
       [](const Tensor& x) {
         return psum(x, "i", {.axis_index_groups = {{0, 2}, {1}}});
       },
       [](const Tensor& x) {
         const Tensor pair = x[0] + x[2];
         return at::stack({pair, x[1], pair});
       }},
      {"pmean", [](const Tensor& x) { return pmean(x, "i"); },
       [](const Tensor& x) { return same_everywhere(x.mean(0)); }},
      {"pmax", [](const Tensor& x) { return pmax(x, "i"); },
       [](const Tensor& x) { return same_everywhere(x.amax(0)); }},
      {"pmin", [](const Tensor& x) { return pmin(x, "i"); },
       [](const Tensor& x) { return same_everywhere(x.amin(0)); }},
      {"all_gather", [](const Tensor& x) { return all_gather(x, "i"); },
       [](const Tensor& x) {
         return x.unsqueeze(0).expand({3, 3, 3, 2});
       }},
      {"psum_scatter", [](const Tensor& x) { return psum_scatter(x, "i"); },
       [](const Tensor& x) { return x.sum(0); }},
      {"all_to_all", [](const Tensor& x) { return all_to_all(x, "i", 0, 0); }, turned},
      {"pswapaxes", [](const Tensor& x) { return pswapaxes(x, "i", 0); }, turned},
      {"ragged_all_to_all", exchange_rows, turned},
      {"ppermute",
       [](const Tensor& x) {
         return ppermute(x, "i", {{0, 1}, {1, 2}});
       },
       [](const Tensor& x) {
         return at::stack({at::zeros({3, 2}, at::kDouble), x[0], x[1]});
       }},
      {"pshuffle",
       [](const Tensor& x) {
         return pshuffle(x, "i", {2, 0, 1});
       },
       [](const Tensor& x) {
         return at::stack({x[2], x[0], x[1]});
       }},
      {"pbroadcast", [](const Tensor& x) { return pbroadcast(x, "i", 1); },
       [](const Tensor& x) { return same_everywhere(x[1]); }},
  };
}

// An operation behind a map that is differentiated by a mapped argument, a broadcast argument, and
// two captured tensors: a leaf, and one that was made of it.
using MapOf = std::function<Tensor(const std::function<Tensor(const Tensor&, const Tensor&)>& f,
                                   const Tensor& mapped, const Tensor& broadcast)>;

void check_example(const Example& example, const MapOf& map) {
  INFO(example.name);
  const Loss loss = [&](const Tensors& x) {
    const Tensor& captured = x[2];
    const Tensor made_of_it = x[2] * x[3] * x[3];
    return weighed(map(
        [&](const Tensor& mapped, const Tensor& broadcast) {
          return example.operation(mapped * mapped * broadcast + captured * made_of_it);
        },
        x[0], x[1]));
  };
  const Loss serial = [&](const Tensors& x) {
    return weighed(example.serial(x[0] * x[0] * x[1] + x[2] * x[2] * x[3] * x[3]));
  };
  check_loss(
      loss, serial,
      {normal("x", {3, 3, 2}), normal("w", {3, 2}), normal("c", {3, 2}), normal("s", {3, 2})});
}

Tensor in_pmap(const std::function<Tensor(const Tensor&, const Tensor&)>& f, const Tensor& mapped,
               const Tensor& broadcast) {
  return pmap(f, {.in_axes = {0, std::nullopt}})(mapped, broadcast);
}

Tensor in_vmap(const std::function<Tensor(const Tensor&, const Tensor&)>& f, const Tensor& mapped,
               const Tensor& broadcast) {
  return vmap(f, {.in_axes = {0, std::nullopt}})(mapped, broadcast);
}

Tensor in_shard_map(const std::function<Tensor(const Tensor&, const Tensor&)>& f,
                    const Tensor& mapped, const Tensor& broadcast) {
  const auto block = [&](const Tensor& x, const Tensor& w) { return f(x[0], w).unsqueeze(0); };
  return shard_map(block, Mesh({{"i", 3}}), {P("i"), P()}, P("i"))(mapped, broadcast);
}

}  // namespace

TEST_CASE("every operator is differentiated through a pmap from outside") {
  for (const Example& example : examples()) check_example(example, in_pmap);
}

TEST_CASE("every operator is differentiated through a vmap from outside") {
  for (const Example& example : examples()) check_example(example, in_vmap);
}

TEST_CASE("every operator is differentiated through a shard_map from outside") {
  for (const Example& example : examples()) check_example(example, in_shard_map);
}

TEST_CASE("pmap and vmap give gradients of the same bits") {
  const Tensor x = normal("x", {3, 3, 2});
  const auto gradient = [&](const MapOf& map) {
    return grad([&](const Tensor& w) {
      return map([](const Tensor& part,
                    const Tensor& own) { return psum((part * own).sin(), "i") * own; },
                 x, w)
          .sum();
    })(normal("w", {3, 2}));
  };
  CHECK(gradient(in_pmap).equal(gradient(in_vmap)));
}
