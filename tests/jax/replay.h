#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/axes/axis_names.h"
#include "framework/tree/tree.h"
#include "tests/jax/program.h"

// What the words of the recorded programs mean in Lockstep.

namespace lockstep::testing {

using Values = std::vector<Tensor>;
/// Takes a step on the values that there are, and returns its results.
using Meaning = std::function<Values(const Step& step, const Values& values)>;
using Meanings = std::map<std::string, Meaning>;

/// Runs a program or the body of a map. Throws std::runtime_error for an operation without meaning.
[[nodiscard]] Values run(const Body& body, Values values);

/// What is wrong with the case as Lockstep runs it; "" if nothing.
[[nodiscard]] std::string replay(const RecordedCase& one);

[[nodiscard]] Meanings arithmetic();  // and gradients
[[nodiscard]] Meanings reductions();  // and all_gather, psum_scatter, axis_index, axis_size
[[nodiscard]] Meanings exchanges();   // and pbroadcast, pargmax, pargmin
[[nodiscard]] Meanings pmap_steps();
[[nodiscard]] Meanings vmap_steps();
[[nodiscard]] Meanings shard_map_steps();

inline AxisNames axis_of(const Step& step) {
  return {step.axis};
}

/// A number that the programs work on as a tensor.
[[nodiscard]] Tensor number(double value, at::ScalarType dtype = at::kFloat);

/// The leaves of the arguments of a map or gradient.
[[nodiscard]] std::vector<Values> arguments_of(const Step& step, const Values& values);

/// Applies `function` to the step's operands as the tree that it says, and returns the leaves.
template <typename Function>
Values on_tree(const Step& step, const Values& values, const Function& function) {
  Values leaves;
  for (const std::size_t i : step.x) leaves.push_back(values.at(i));
  if (step.tree == "map") {
    std::map<std::string, Tensor> tree;
    for (std::size_t i = 0; i < leaves.size(); ++i) tree["leaf" + std::to_string(i)] = leaves[i];
    return tree_leaves(function(tree));
  }
  if (step.tree == "pair") return tree_leaves(function(std::pair(leaves.at(0), leaves.at(1))));
  if (leaves.size() == 1) return {function(leaves[0])};
  return function(leaves);
}

/// What `function(step, tree)` gives on the step's operands.
template <typename Function>
Meaning on_trees(const Function& function) {
  return [function](const Step& step, const Values& values) {
    return on_tree(step, values, [&](const auto& tree) { return function(step, tree); });
  };
}

/// Calls `map(function)(arguments…)` with one list of tensors an argument, where `function` runs
/// the step's body and returns a list of tensors or, if `separate`, a tuple of them.
template <typename Map>
Values run_map(const Step& step, const Values& values, bool separate, const Map& map) {
  const auto args = arguments_of(step, values);
  const auto gather = [&](const auto&... own) {
    Values leaves;
    const auto add = [&](const auto& argument) {
      if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, Values>) {
        leaves.insert(leaves.end(), argument.begin(), argument.end());
      } else {
        leaves.push_back(number(argument));
      }
    };
    (add(own), ...);
    return run(*step.body, std::move(leaves));
  };
  const auto with_arguments = [&](const auto& function) -> Values {
    const auto call = [&](const auto&... given) { return tree_leaves(map(function)(given...)); };
    if (step.static_argument) return call(args.at(0), *step.static_argument);
    switch (args.size()) {
      case 1:
        return call(args[0]);
      case 2:
        return call(args[0], args[1]);
      case 3:
        return call(args[0], args[1], args[2]);
      case 4:
        return call(args[0], args[1], args[2], args[3]);
      default:
        throw std::runtime_error("a map has more arguments than the replay passes on");
    }
  };
  if (!separate) return with_arguments(gather);
  switch (step.body->results.size()) {
    case 2:
      return with_arguments([&](const auto&... own) {
        const Values results = gather(own...);
        return std::tuple(results.at(0), results.at(1));
      });
    case 3:
      return with_arguments([&](const auto&... own) {
        const Values results = gather(own...);
        return std::tuple(results.at(0), results.at(1), results.at(2));
      });
    default:
      throw std::runtime_error("a map has more results than the replay passes on");
  }
}

}  // namespace lockstep::testing
