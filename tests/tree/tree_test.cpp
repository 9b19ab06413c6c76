#include "framework/tree/tree.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "tests/catch.h"

namespace elsewhere {
struct Layer {
  at::Tensor weight;
  std::optional<at::Tensor> bias;
};
LOCKSTEP_TREE(Layer, weight, bias)

struct Net {
  std::vector<Layer> layers;
  std::map<std::string, at::Tensor> extras;
  std::pair<at::Tensor, std::array<at::Tensor, 2>> scales;
  int not_a_leaf = 0;
};
LOCKSTEP_TREE(Net, layers, extras, scales)

struct NoTree {
  int value = 0;
};
}  // namespace elsewhere

using namespace lockstep;
using elsewhere::Layer;
using elsewhere::Net;

static_assert(Tree<Tensor> && Tree<Net> && Tree<std::tuple<Tensor, Net>> && Tree<const Net&>);
static_assert(Tree<std::vector<std::optional<Layer>>> && Tree<std::map<std::string, Net>>);
static_assert(!Tree<int> && !Tree<std::string> && !Tree<std::vector<int>> && !Tree<double>);
static_assert(!Tree<elsewhere::NoTree> && !Tree<std::pair<Tensor, int>>);

namespace {

Tensor number(double value) {
  return at::full({}, value);
}

Net example() {
  return Net{{{number(1), number(2)}, {number(3), std::nullopt}},
             {{"b", number(5)}, {"a", number(4)}},
             {number(6), {number(7), number(8)}},
             42};
}

std::vector<double> numbers(const std::vector<Tensor>& leaves) {
  std::vector<double> values;
  for (const Tensor& leaf : leaves) values.push_back(leaf.item<double>());
  return values;
}

}  // namespace

TEST_CASE("leaves come in the order of members, elements and keys") {
  CHECK(numbers(tree_leaves(example())) == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(tree_leaves(std::tuple<Tensor, std::vector<Tensor>>(number(1), {})).size() == 1);
  CHECK(tree_leaves(std::vector<Net>{}).empty());
}

TEST_CASE("unflatten puts leaves back and leaves the rest as it was") {
  const Net tree = example();
  std::vector<Tensor> leaves;
  for (int i = 0; i < 8; ++i) leaves.push_back(number(10 * i));
  const Net back = tree_unflatten(tree, leaves);
  CHECK(numbers(tree_leaves(back)) == std::vector<double>{0, 10, 20, 30, 40, 50, 60, 70});
  CHECK(back.not_a_leaf == 42);
  CHECK(!back.layers[1].bias.has_value());
  CHECK(back.extras.at("a").item<double>() == 30);

  leaves.pop_back();
  CHECK_THROWS_WITH(tree_unflatten(tree, leaves), "tree_unflatten: 7 leaves for a tree that has 8");
  CHECK_THROWS_AS(tree_unflatten(tree, leaves), ValueError);
}

TEST_CASE("tree_map combines corresponding leaves") {
  const auto sum = [](const Tensor& a, const Tensor& b, const Tensor& c) { return a + b * c; };
  const Net mapped = tree_map(sum, example(), example(), example());
  CHECK(numbers(tree_leaves(mapped)) == std::vector<double>{2, 6, 12, 20, 30, 42, 56, 72});
}

TEST_CASE("trees that are not built alike are refused, with the place") {
  const auto first = [](const Tensor& a, const Tensor&) { return a; };
  const auto differs = [&](const auto& change) {
    Net other = example();
    change(other);
    try {
      (void)tree_map(first, example(), other);
    } catch (const ValueError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(differs([](Net& net) { net.layers.pop_back(); }) ==
        "trees differ in structure at the root.0: 2 and 1 elements");
  CHECK(differs([](Net& net) { net.layers[1].bias = number(0); }) ==
        "trees differ in structure at the root.0[1].1: one is there, the other is not");
  CHECK(differs([](Net& net) {
          net.extras.erase("a");
          net.extras["c"] = number(0);
        }) == "trees differ in structure at the root.1: keys 'a' and 'b'");
}
