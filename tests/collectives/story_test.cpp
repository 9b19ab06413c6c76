// The collectives one after another, as stories: what each replica has, what it does, what it gets.

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "framework/base/random.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/tree/tree.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

constexpr std::int64_t kReplicas = 4;
constexpr std::uint64_t kSeed = 20250419;

Tensor normal(const std::string& use, at::IntArrayRef sizes) {
  return at::randn(sizes, at::detail::createCPUGenerator(Key(kSeed).fold(use).bits()), at::kDouble);
}

// [10 * row + column] for four rows: replica r has 10 r, 10 r + 1, 10 r + 2, 10 r + 3.
Tensor tens() {
  return 10 * at::arange(kReplicas).unsqueeze(1) + at::arange(kReplicas);
}

Mesh data_by_model() {
  return Mesh({{"data", 2}, {"model", 4}});
}

// One stage of the pipeline: its weight is its own.
Tensor stage(const Tensor& activation, const Tensor& weight) {
  return at::tanh(activation.matmul(weight));
}

// Pushes the microbatches (M, rows, width) through one stage a replica. In each tick, each replica
// works on the rows from the replica before it, and replica 0 on the next microbatch. The rows that
// the last replica finishes are its result.
Tensor pipeline(const Tensor& weight, const Tensor& microbatches) {
  const std::int64_t stages = axis_size("stage");
  const std::int64_t me = axis_index("stage");
  const std::int64_t batches = microbatches.size(0);
  SourceDestinationPairs onwards;
  for (std::int64_t s = 0; s + 1 < stages; ++s) onwards.emplace_back(s, s + 1);

  Tensor arrived = at::zeros_like(microbatches[0]);
  std::vector<Tensor> finished;
  for (std::int64_t tick = 0; tick < batches + stages - 1; ++tick) {
    const Tensor input = me == 0 && tick < batches ? microbatches[tick] : arrived;
    const Tensor output = stage(input, weight);
    if (tick >= stages - 1) finished.push_back(output);
    arrived = ppermute(output, "stage", onwards);
  }
  return at::stack(finished);
}

}  // namespace

TEST_CASE("broadcast: everyone gets what one has") {
  const auto f = [](const Tensor& mine) { return pbroadcast(mine, "i", 2); };
  CHECK(pmap(f)(tens()).equal(tens()[2].expand({4, 4})));
}

TEST_CASE("scatter: one cuts what it has into a piece for each") {
  // Replica 1 has the pieces; a broadcast and the own index are all it takes.
  const auto by_index = [](const Tensor& mine) {
    return pbroadcast(mine, "i", 1)[axis_index("i")];
  };
  CHECK(pmap(by_index)(tens()).equal(tens()[1]));
  // Or the replicas without them add nothing, and each receives a quarter only.
  const auto by_sum = [](const Tensor& mine) {
    return psum_scatter(axis_index("i") == 1 ? mine : at::zeros_like(mine), "i");
  };
  CHECK(pmap(by_sum)(tens()).equal(tens()[1]));
}

TEST_CASE("reduce: one gets the sum") {
  const auto f = [](const Tensor& mine) { return psum(mine, "i"); };
  const Tensor sum = at::tensor({60, 64, 68, 72}, at::kLong);
  CHECK(pmap(f, {.out_axes = std::nullopt})(tens()).equal(sum));
}

TEST_CASE("all-reduce: everyone gets the sum, the mean, the largest and the smallest") {
  const auto f = [](const Tensor& mine) {
    return std::tuple(psum(mine, "i"), pmean(mine.to(at::kDouble), "i"), pmax(mine, "i"),
                      pmin(mine, "i"));
  };
  const auto [sum, mean, largest, smallest] = pmap(f)(tens());
  CHECK(sum.equal(at::tensor({60, 64, 68, 72}, at::kLong).expand({4, 4})));
  CHECK(mean.equal(at::tensor({15, 16, 17, 18}, at::kDouble).expand({4, 4})));
  CHECK(largest.equal(tens()[3].expand({4, 4})));
  CHECK(smallest.equal(tens()[0].expand({4, 4})));
}

TEST_CASE("all-reduce is reduce-scatter and then all-gather, bit for bit") {
  const auto f = [](const Tensor& mine) {
    return std::tuple(psum(mine, "i"), all_gather(psum_scatter(mine, "i"), "i"));
  };
  const auto [at_once, in_two] = pmap(f)(normal("x", {4, 4, 5}));
  CHECK(at_once.equal(in_two));
}

TEST_CASE("gather: one gets what each has, or everyone does") {
  const auto f = [](const Tensor& mine) { return all_gather(mine, "i"); };
  CHECK(pmap(f, {.out_axes = std::nullopt})(tens()).equal(tens()));
  CHECK(pmap(f)(tens()).equal(tens().expand({4, 4, 4})));
  // Without a collective at all: results are stacked.
  CHECK(pmap([](const Tensor& mine) { return mine; })(tens()).equal(tens()));
}

TEST_CASE("all-to-all: each has a piece for everyone, which transposes the whole") {
  const auto f = [](const Tensor& mine) { return all_to_all(mine, "i", 0, 0); };
  CHECK(pmap(f)(tens()).equal(tens().t()));
  const auto there_and_back = [&](const Tensor& mine) { return f(f(mine)); };
  CHECK(pmap(there_and_back)(tens()).equal(tens()));
}

TEST_CASE("permute: everyone hands on to the next, who gets nothing has zeros") {
  const auto in_a_ring = [](const Tensor& mine) {
    return ppermute(mine, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  };
  CHECK(pmap(in_a_ring)(tens()).equal(tens().roll(1, 0)));
  const auto in_a_row = [](const Tensor& mine) {
    return ppermute(mine, "i", {{0, 1}, {1, 2}, {2, 3}});
  };
  CHECK(pmap(in_a_row)(tens()).equal(
      at::cat({at::zeros({1, 4}, at::kLong), tens().narrow(0, 0, 3)})));
}

TEST_CASE("a sum by hand: N - 1 steps around the ring") {
  const auto f = [](const Tensor& mine) {
    Tensor sum = mine;
    Tensor travelling = mine;
    for (std::int64_t step = 1; step < axis_size("i"); ++step) {
      travelling = ppermute(travelling, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
      sum = sum + travelling;
    }
    return std::tuple(sum, psum(mine, "i"));
  };
  const auto [by_hand, at_once] = pmap(f)(tens());
  CHECK(by_hand.equal(at_once));
}

TEST_CASE("scaled_sum: twice the data, summed over the devices") {
  const auto scaled_sum =
      pmap([](const Tensor& x) { return psum(2 * x, "devices"); }, {.axis_name = "devices"});
  CHECK(scaled_sum(at::arange(2)).equal(at::tensor({2, 2}, at::kLong)));
  CHECK(scaled_sum(at::arange(3)).equal(at::tensor({6, 6, 6}, at::kLong)));
  CHECK(scaled_sum(at::arange(4)).equal(at::tensor({12, 12, 12, 12}, at::kLong)));
}

TEST_CASE("replicas with the same shard, and shards of the same replica") {
  // Two copies of a model (along "data"), each cut into four shards (along "model"). Gradients are
  // averaged among the holders of the same shard; the model's norm is summed over the shards of the
  // same copy.
  const Tensor gradients = at::arange(8.0).view({2, 4});  // one number a replica
  const auto f = [](const Tensor& mine) {
    const Tensor average = pmean(mine, "data");
    return std::tuple(average, psum(average * average, "model"), psum(mine, {"data", "model"}));
  };
  const auto [averages, norms, sums] =
      shard_map(f, data_by_model(), {P("data", "model")}, {P(none, "model"), P(), P()})(gradients);
  CHECK(averages.equal(at::tensor({2.0, 3.0, 4.0, 5.0}).view({1, 4})));
  CHECK(norms.equal(at::full({1, 1}, 54.0)));
  CHECK(sums.equal(at::full({1, 1}, 28.0)));
}

TEST_CASE("the same along one axis of eight, with groups instead of a second axis") {
  const AxisIndexGroups same_shard{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  const AxisIndexGroups same_copy{{0, 1, 2, 3}, {4, 5, 6, 7}};
  const auto f = [&](const Tensor& mine) {
    const Tensor average = pmean(mine, "i", {.axis_index_groups = same_shard});
    return std::tuple(average, psum(average * average, "i", {.axis_index_groups = same_copy}));
  };
  const auto [averages, norms] = pmap(f)(at::arange(8.0));
  CHECK(averages.equal(at::tensor({2.0, 3.0, 4.0, 5.0, 2.0, 3.0, 4.0, 5.0})));
  CHECK(norms.equal(at::full({8}, 54.0)));
}

TEST_CASE("a layer whose weights are sharded, on batches that are sharded the other way") {
  INFO("seed " << kSeed);
  const Tensor x = normal("x", {6, 5});
  const Tensor up = normal("up", {5, 8});
  const Tensor down = normal("down", {8, 3});
  // Columns of the first matrix and rows of the second: one psum a layer.
  const auto layer = [](const Tensor& own_x, const Tensor& own_up, const Tensor& own_down) {
    return psum(at::relu(own_x.matmul(own_up)).matmul(own_down), "model");
  };
  const auto sharded =
      shard_map(layer, data_by_model(), {P("data"), P(none, "model"), P("model")}, P("data"));
  CHECK(at::allclose(sharded(x, up, down), at::relu(x.matmul(up)).matmul(down)));
}

TEST_CASE("a pipeline: each replica is a stage and hands its activations to the next") {
  INFO("seed " << kSeed);
  for (const std::int64_t stages : {1, 2, 4}) {
    const Tensor weights = normal("weights", {stages, 3, 3});
    const Tensor microbatches = normal("microbatches", {5, 2, 3});
    // The last stage has the results.
    const auto f = [](const Tensor& weight, const Tensor& batches) {
      const Tensor results = pipeline(weight, batches);
      return pbroadcast(results, "stage", axis_size("stage") - 1);
    };
    const Tensor results =
        pmap(f, {.axis_name = "stage", .in_axes = {0, std::nullopt}, .out_axes = std::nullopt})(
            weights, microbatches);
    Tensor expected = microbatches;
    for (std::int64_t s = 0; s < stages; ++s) expected = stage(expected, weights[s]);
    CHECK(at::allclose(results, expected, 1e-12, 1e-12));
  }
}

TEST_CASE("a matrix product sharded over two axes") {
  INFO("seed " << kSeed);
  const Tensor a = normal("a", {6, 8});
  const Tensor b = normal("b", {8, 4});

  SECTION("rows of a, columns of b: no collective at all") {
    const auto f = [](const Tensor& rows, const Tensor& columns) { return rows.matmul(columns); };
    const auto product =
        shard_map(f, data_by_model(), {P("data"), P(none, "model")}, P("data", "model"));
    CHECK(at::allclose(product(a, b), a.matmul(b)));
  }
  SECTION("blocks of a, rows of b: the products are parts of a sum") {
    const auto f = [](const Tensor& block, const Tensor& rows) {
      return psum(block.matmul(rows), "model");
    };
    const auto product = shard_map(f, data_by_model(), {P("data", "model"), P("model")}, P("data"));
    CHECK(at::allclose(product(a, b), a.matmul(b)));
  }
  SECTION("the sum stays cut: reduce-scatter instead of all-reduce") {
    const auto f = [](const Tensor& block, const Tensor& rows) {
      return psum_scatter(block.matmul(rows), "model", {.scatter_dimension = 1, .tiled = true});
    };
    const auto product =
        shard_map(f, data_by_model(), {P("data", "model"), P("model")}, P("data", "model"));
    CHECK(at::allclose(product(a, b), a.matmul(b)));
  }
  SECTION("both in blocks: gather the row of a and the column of b") {
    const auto f = [](const Tensor& block_a, const Tensor& block_b) {
      const Tensor row = all_gather(block_a, "model", {.axis = 1, .tiled = true});
      const Tensor column = all_gather(block_b, "data", {.axis = 0, .tiled = true});
      return row.matmul(column);
    };
    const auto product =
        shard_map(f, data_by_model(), {P("data", "model"), P("data", "model")}, P("data", "model"));
    CHECK(at::allclose(product(a, b), a.matmul(b)));
  }
}
