#include "framework/tree/tree.h"

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/relu.h>

#include "tests/catch.h"
#include "tests/support/message_of.h"

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

enum class Color { red, green };

// A model with its settings.
struct Settings {
  at::Tensor weight;
  int heads = 4;
  std::string name = "attention";
  Color color = Color::green;
  std::function<at::Tensor(const at::Tensor&)> activation;
};
LOCKSTEP_TREE(Settings, weight, heads, name, color, activation)

struct Recursive {
  at::Tensor value;
  std::vector<Recursive> children;
};
LOCKSTEP_TREE(Recursive, value, children)
}  // namespace elsewhere

using namespace lockstep;
using elsewhere::Layer;
using elsewhere::Net;
using lockstep::testing::message_of;

static_assert(Tree<Tensor> && Tree<Net> && Tree<std::tuple<Tensor, Net>> && Tree<const Net&>);
static_assert(Tree<std::vector<std::optional<Layer>>> && Tree<std::map<std::string, Net>>);
static_assert(!Tree<int> && !Tree<std::string> && !Tree<std::vector<int>> && !Tree<double>);
static_assert(!Tree<elsewhere::NoTree> && !Tree<std::pair<Tensor, elsewhere::NoTree>>);
static_assert(Tree<std::pair<Tensor, int>> && Tree<elsewhere::Settings>);
static_assert(Tree<std::unordered_map<std::string, Tensor>> && Tree<std::map<int, Tensor>>);
static_assert(Tree<std::tuple<double, std::vector<Tensor>, std::string>>);
static_assert(Tree<std::pair<Tensor, StaticArgument<elsewhere::NoTree>>>);
static_assert(!Tree<std::pair<int, std::string>> && !Tree<std::map<std::string, double>>);

// Types that maps take as they are, and types that nobody has said anything of.
using tree_detail::kind;
using tree_detail::Kind;
static_assert(kind<int> == Kind::fixed && kind<elsewhere::Color> == Kind::fixed);
static_assert(kind<std::string> == Kind::fixed && kind<char[5]> == Kind::fixed);
static_assert(kind<const char*> == Kind::fixed && kind<std::nullptr_t> == Kind::fixed);
static_assert(kind<int (*)(int)> == Kind::fixed && kind<Tensor(const Tensor&)> == Kind::fixed);
static_assert(kind<std::function<void()>> == Kind::fixed);
static_assert(kind<decltype([](const auto& x) { return x; })> == Kind::fixed);
static_assert(kind<decltype([](int x) { return x; })> == Kind::fixed);
static_assert(kind<std::vector<bool>> == Kind::fixed);
static_assert(kind<std::optional<std::pair<int, std::string>>> == Kind::fixed);
static_assert(kind<StaticArgument<elsewhere::NoTree>> == Kind::fixed);
static_assert(kind<elsewhere::NoTree> == Kind::unknown && kind<Tensor*> == Kind::unknown);
static_assert(kind<std::vector<elsewhere::NoTree>> == Kind::unknown);
static_assert(kind<std::reference_wrapper<const Tensor>> == Kind::unknown);
static_assert(kind<std::tuple<Tensor, int, elsewhere::NoTree>> == Kind::unknown);
static_assert(tree_detail::has_values<elsewhere::Settings>());
static_assert(!tree_detail::has_values<elsewhere::Recursive>() && !tree_detail::has_values<Net>());

namespace {

Tensor scalar(double value) {
  return at::full({}, value);
}

Net example() {
  return Net{{{scalar(1), scalar(2)}, {scalar(3), std::nullopt}},
             {{"b", scalar(5)}, {"a", scalar(4)}},
             {scalar(6), {scalar(7), scalar(8)}},
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
  CHECK(tree_leaves(std::tuple<Tensor, std::vector<Tensor>>(scalar(1), {})).size() == 1);
  CHECK(tree_leaves(std::vector<Net>{}).empty());
}

TEST_CASE("leaves have paths of members, elements and keys") {
  using tree_detail::paths_of;
  CHECK(paths_of(example()) == std::vector<std::string>{".layers[0].weight", ".layers[0].bias",
                                                        ".layers[1].weight", ".extras['a']",
                                                        ".extras['b']", ".scales.0", ".scales.1[0]",
                                                        ".scales.1[1]"});
  CHECK(paths_of(scalar(1)) == std::vector<std::string>{""});
  CHECK(paths_of(std::map<int, std::pair<Tensor, int>>{{3, {scalar(1), 2}}}) ==
        std::vector<std::string>{"[3].0"});
  CHECK(paths_of(elsewhere::Recursive{scalar(1), {{scalar(2), {}}}}) ==
        std::vector<std::string>{".value", ".children[0].value"});
}

TEST_CASE("unflatten puts leaves back and leaves the rest as it was") {
  const Net tree = example();
  std::vector<Tensor> leaves;
  for (int i = 0; i < 8; ++i) leaves.push_back(scalar(10 * i));
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
    return message_of<ValueError>([&] { (void)tree_map(first, example(), other); });
  };
  CHECK(differs([](Net& net) { net.layers.pop_back(); }) ==
        "trees differ in structure at the root.layers: 2 and 1 elements");
  CHECK(differs([](Net& net) { net.layers[1].bias = scalar(0); }) ==
        "trees differ in structure at the root.layers[1].bias: one is there, the other is not");
  CHECK(differs([](Net& net) {
          net.extras.erase("a");
          net.extras["c"] = scalar(0);
        }) ==
        "trees differ in structure at the root.extras: one has the key 'a', the other has not");
}

TEST_CASE("unordered maps have their leaves in the order of keys, however they came to be") {
  using Tensors = std::unordered_map<std::string, Tensor>;
  Tensors forward;
  Tensors backward;
  backward.reserve(1000);
  std::vector<double> expected;
  for (int i = 0; i < 200; ++i) {
    forward["key" + std::to_string(1000 + i)] = scalar(i);
    backward["key" + std::to_string(1199 - i)] = scalar(199 - i);
    expected.push_back(i);
  }
  CHECK(numbers(tree_leaves(forward)) == expected);
  CHECK(numbers(tree_leaves(backward)) == expected);
  const Tensors sums =
      tree_map([](const Tensor& a, const Tensor& b) { return a + b; }, forward, backward);
  CHECK(sums.at("key1007").item<double>() == 14);
  std::vector<Tensor> leaves;
  for (int i = 0; i < 200; ++i) leaves.push_back(scalar(-i));
  CHECK(tree_unflatten(backward, leaves).at("key1003").item<double>() == -3);
  backward.erase("key1003");
  backward["other"] = scalar(3);
  CHECK_THROWS_WITH(
      tree_map([](const Tensor& a, const Tensor&) { return a; }, forward, backward),
      "trees differ in structure at the root: one has the key 'key1003', the other has not");
}

TEST_CASE("static values ride along, and trees that are built alike have the same") {
  const elsewhere::Settings settings{scalar(2), 8, "mlp", elsewhere::Color::red, at::relu};
  CHECK(numbers(tree_leaves(settings)) == std::vector<double>{2});
  const auto twice = tree_map([](const Tensor& x) { return 2 * x; }, settings);
  CHECK(twice.weight.item<double>() == 4);
  CHECK((twice.heads == 8 && twice.name == "mlp" && twice.color == elsewhere::Color::red));
  CHECK(twice.activation(scalar(-1)).item<double>() == 0);

  const auto first = [](const Tensor& a, const Tensor&) { return a; };
  const auto differs = [&](const auto& a, const auto& b) {
    return message_of<ValueError>([&] { (void)tree_map(first, a, b); });
  };
  auto other = settings;
  other.activation = nullptr;  // not compared
  CHECK(differs(settings, other) == "no error");
  other.heads = 9;
  CHECK(differs(settings, other) == "trees differ in structure at the root.heads: 8 and 9");
  other = settings;
  other.name = "cnn";
  CHECK(differs(settings, other) == "trees differ in structure at the root.name: 'mlp' and 'cnn'");
  CHECK(differs(std::pair(scalar(1), 0.5), std::pair(scalar(1), 0.25)) ==
        "trees differ in structure at the root.1: 0.5 and 0.25");
  CHECK(differs(std::pair(scalar(1), std::nan("")), std::pair(scalar(1), std::nan(""))) ==
        "no error");
  using Flags = std::pair<Tensor, std::vector<bool>>;
  CHECK(differs(Flags(scalar(1), {true, true}), Flags(scalar(1), {true, false})) ==
        "trees differ in structure at the root.1[1]: true and false");
}

TEST_CASE("static_argument holds what it is given, a temporary as its own") {
  const elsewhere::NoTree config{7};
  const auto held = static_argument(config);
  CHECK(&held.value == &config);
  CHECK(static_argument(elsewhere::NoTree{8}).value.value == 8);
}
