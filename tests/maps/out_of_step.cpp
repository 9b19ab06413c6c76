#include "tests/maps/out_of_step.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"

namespace lockstep::testing {
namespace {

using at::Tensor;

// An act of each replica, which the odd one does in another way.
using Act = std::function<void(bool is_odd)>;

void join_all() {
  (void)psum(at::ones({}), "data");
}

std::function<void(std::int64_t)> in_forward(const Act& act) {
  return [act](std::int64_t odd) {
    join_all();
    act(axis_index("data") == odd);
  };
}

// All run the same forward, and a gradient's hook acts in its backward. Then all join.
std::function<void(std::int64_t)> in_backward(const Act& act) {
  return [act](std::int64_t odd) {
    join_all();
    const bool is_odd = axis_index("data") == odd;
    const Tensor x = at::ones({3}).set_requires_grad(true);
    const Tensor y = x * 2;
    (void)y.register_hook([=](const Tensor& gradient) {
      act(is_odd);
      return gradient;
    });
    y.sum().backward();
    (void)psum(at::ones({2}), "data");
  };
}

void skip(bool is_odd) {
  if (!is_odd) (void)psum(at::ones({4, 2}), "data");
  (void)pmean(at::ones({3}), "data");
}

void other_operation(bool is_odd) {
  if (is_odd) {
    (void)pmax(at::ones({3}), "data");
  } else {
    (void)psum(at::ones({3}), "data");
  }
}

void other_shape(bool is_odd) {
  (void)psum(at::ones({is_odd ? 64 : 32, 10}), "data");
}

void other_dtype(bool is_odd) {
  (void)psum(at::ones({3}, is_odd ? at::kDouble : at::kFloat), "data");
}

// The leaves are a gradient's tree.
void other_leaf(bool is_odd) {
  std::vector<Tensor> tree(20, at::ones({4}));
  if (is_odd) tree[12] = at::ones({5});
  (void)psum(tree, "data");
}

void other_leaf_of_many(bool is_odd) {
  std::vector<Tensor> tree;
  for (int i = 0; i < 100; ++i) tree.push_back(at::ones({i + 1, 7}));
  if (is_odd) tree[70] = at::ones({2, 2});
  (void)psum(tree, "data");
}

void no_leaves(bool is_odd) {
  (void)psum(is_odd ? std::nullopt : std::optional(at::ones({4})), "data");
}

void no_elements(bool is_odd) {
  (void)psum(at::ones({is_odd ? 0 : 4}), "data");
}

void no_elements_in_place(bool is_odd) {
  psum_(at::ones({is_odd ? 0 : 4}), "data");
}

void other_keys(bool is_odd) {
  const std::string key = is_odd ? "c" : "b";
  (void)psum(std::map<std::string, Tensor>{{"a", at::ones({4})}, {key, at::ones({4})}}, "data");
}

void other_lengths(bool is_odd) {
  using Leaves = std::vector<Tensor>;
  std::vector<Leaves> tree(2, Leaves(1, at::ones({4})));
  tree[is_odd ? 0 : 1].push_back(at::ones({4}));
  (void)psum(tree, "data");
}

// The first paths are the same on all replicas.
void other_key_of_many(bool is_odd) {
  std::map<int, Tensor> tree;
  for (int i = 0; i < 100; ++i) tree[i + (is_odd && i > 70 ? 1000 : 0)] = at::ones({4});
  (void)psum(tree, "data");
}

// The odd replica's pvary does not communicate, so it is no part of the others' call.
void varies_alone(bool is_odd) {
  is_odd ? (void)pvary(at::ones({3}), "data") : (void)psum(at::ones({3}), "data");
}

void other_option(bool is_odd) {
  (void)all_gather(at::ones({3}), "data", {.tiled = is_odd});
}

// Replicas that don't need the odd one complete their call and go on.
void other_group(bool is_odd) {
  using Groups = std::vector<std::vector<std::int64_t>>;
  const Groups groups = is_odd ? Groups{{0, 2}, {1, 3}} : Groups{{0, 1}, {2, 3}};
  (void)psum(at::ones({3}), "data", {.axis_index_groups = groups});
  join_all();
}

void other_axis(std::int64_t odd) {
  const bool is_odd = axis_index({"row", "column"}) == odd;
  (void)psum(at::ones({}), {"row", "column"});
  (void)psum(at::ones({3}), is_odd ? "row" : "column");
  (void)psum(at::ones({}), {"row", "column"});
}

void returns(bool is_odd) {
  if (!is_odd) (void)psum(at::ones({3}), "data");
}

void throws(bool is_odd) {
  if (is_odd) throw DataError("the file ends early");
  (void)psum(at::ones({3}), "data");
}

void differentiates(bool is_odd) {
  (void)psum(at::ones({3}).set_requires_grad(is_odd), "data");
}

// Differentiates a loss that takes part in a sum, and depends on it if `uses_sum`.
void differentiate_loss(bool uses_sum) {
  const auto loss = [&](const Tensor& x) {
    const Tensor sum = psum(x, "data");
    return uses_sum ? sum.sum() : (2 * x).sum();
  };
  (void)grad(loss)(at::ones({3}));
}

void unused_then_returns(bool is_odd) {
  differentiate_loss(!is_odd);
}

void unused_then_goes_on(bool is_odd) {
  differentiate_loss(!is_odd);
  (void)pmean(at::ones({2}), "data");
}

void used_by_one(bool is_odd) {
  differentiate_loss(is_odd);
  (void)pmean(at::ones({2}), "data");
}

// Makes two sums of one shape; the odd replica uses the first, the others the second.
void other_call(bool is_odd) {
  const auto loss = [&](const Tensor& x) {
    const Tensor sum = psum(x, "data");
    const Tensor other = psum(x * x, "data");
    return (is_odd ? sum : other).sum();
  };
  (void)grad(loss)(at::ones({3}));
}

void other_round(bool is_odd) {
  const auto loss = [&](const Tensor& x) {
    std::vector<Tensor> sums;
    for (int round = 0; round < 2; ++round) sums.push_back(psum(x, "data"));
    return sums[is_odd ? 0 : 1].sum();
  };
  (void)grad(loss)(at::ones({3}));
}

// Makes each gradient a psum of its own, and differentiates that again.
void other_gradient(bool is_odd) {
  const auto square = [](const Tensor& x) {
    const Tensor sum = psum(x, "data");
    return (sum * sum).sum();
  };
  const auto loss = [&](const Tensor& x) {
    const Tensor first = grad(square)(x);
    const Tensor second = grad(square)(2 * x);
    return (is_odd ? first : second).sum();
  };
  (void)grad(loss)(at::ones({3}));
}

void other_map(bool is_odd) {
  const auto sum = [](const Tensor& x) { return psum(x, {"data", "lane"}); };
  const auto loss = [&](const Tensor& x) {
    const Tensor first = vmap(sum, {.axis_name = "lane"})(x);
    const Tensor second = vmap(sum, {.axis_name = "lane"})(x * x);
    return (is_odd ? first : second).sum();
  };
  (void)grad(loss)(at::ones({2, 3}));
}

std::string name_of(const OutOfStep& way, std::int64_t number) {
  return way.on_mesh ? str("(", number / 2, ", ", number % 2, ")") : str(number);
}

std::vector<OutOfStep> ways_in_forward() {
  const auto backward_of = [](int call) {
    return str(" called the backward of psum over 'data' at @ (call ", call,
               "), which is psum with (3) float32");
  };
  const std::string backward = backward_of(2);  // join_all is call 1
  return {
      {.name = "skips a collective",
       .body = in_forward(skip),
       .message = {"replica # called pmean over 'data' at @ with (3) float32",
                   " called psum over 'data' at @ with (4, 2) float32"},
       .lines = 2},
      {.name = "calls another operation",
       .body = in_forward(other_operation),
       .message = {"replica # called pmax over 'data' at @ with (3) float32",
                   " called psum over 'data' at @ with (3) float32"},
       .lines = 2},
      {.name = "has another shape",
       .body = in_forward(other_shape),
       .message = {"replica # called psum over 'data' at @ with (64, 10) float32",
                   " called psum over 'data' at @ with (32, 10) float32"}},
      {.name = "has another dtype",
       .body = in_forward(other_dtype),
       .message = {"replica # called psum over 'data' at @ with (3) float64",
                   " called psum over 'data' at @ with (3) float32"}},
      {.name = "has another leaf",
       .body = in_forward(other_leaf),
       .message = {"replica # called psum over 'data' at @ with 12 x (4) float32, (5) float32, 7 x "
                   "(4) float32",
                   " called psum over 'data' at @ with 20 x (4) float32"}},
      {.name = "has another leaf behind many",
       .body = in_forward(other_leaf_of_many),
       .message = {"replica # called psum over 'data' at @ with (1, 7) float32, (2, 7) float32, ",
                   ", (9, 7) float32 and 91 more leaves; leaves 9 to 24: ", ", 89 to 99: "}},
      {.name = "has no leaves",
       .body = in_forward(no_leaves),
       .message = {"replica # called psum over 'data' at @ with no leaves",
                   " called psum over 'data' at @ with (4) float32"}},
      {.name = "has no elements",
       .body = in_forward(no_elements),
       .message = {"replica # called psum over 'data' at @ with (0) float32",
                   " called psum over 'data' at @ with (4) float32"}},
      {.name = "has no elements in place",
       .body = in_forward(no_elements_in_place),
       .message = {"replica # called psum_ over 'data' at @ with (0) float32",
                   " called psum_ over 'data' at @ with (4) float32"}},
      {.name = "has other keys",
       .body = in_forward(other_keys),
       .message = {"replica # called psum over 'data' at @ with 2 x (4) float32 as ['a'], ['c']",
                   " called psum over 'data' at @ with 2 x (4) float32 as ['a'], ['b']"}},
      {.name = "has other lengths",
       .body = in_forward(other_lengths),
       .message = {"replica # called psum over 'data' at @ with 3 x (4) float32 as [0][0], [0][1], "
                   "[1][0]",
                   " with 3 x (4) float32 as [0][0], [1][0], [1][1]"}},
      {.name = "has another key behind many",
       .body = in_forward(other_key_of_many),
       .message = {"replica # called psum over 'data' at @ with 100 x (4) float32 as [0], [1], ",
                   " more: "}},
      {.name = "calls what does not communicate",
       .body = in_forward(varies_alone),
       .message = {"replica # has returned", " called psum over 'data' at @ with (3) float32"},
       .odd_ends = ""},
      {.name = "has another option",
       .body = in_forward(other_option),
       .message = {"replica # called all_gather over 'data' at @ with (3) float32",
                   " called all_gather over 'data' at @ with (3) float32", "tiled"}},
      {.name = "has other groups",
       .body = in_forward(other_group),
       .message =
           {"replica # called psum over 'data' at @ with (3) float32, groups [[0, 2], [1, 3]]",
            " while replica"},
       .lines = 2},
      {.name = "has another axis",
       .on_mesh = true,
       .body = other_axis,
       .message = {"replica # called psum over 'row' at @ with (3) float32", " while replica",
                   " called psum over ('row', 'column') at @ with () float32"},
       .lines = 2},
      {.name = "has returned",
       .body = in_forward(returns),
       .message = {"replica # has returned", " called psum over 'data' at @ with (3) float32"},
       .odd_ends = ""},
      {.name = "has thrown",
       .body = in_forward(throws),
       .message = {"the file ends early"},
       .lines = 0,
       .others_end = "Aborted",
       .odd_ends = "DataError"},
      {.name = "differentiates",
       .body = in_forward(differentiates),
       .message = {"replica # called psum over 'data' at @ with (3) float32, differentiated",
                   " called psum over 'data' at @ with (3) float32",
                   "; an operand requires a gradient on some replicas only: choose between values "
                   "with at::where instead of a branch, or call requires_grad_() on all replicas"}},
      {.name = "has no backward and returns",
       .body = in_forward(unused_then_returns),
       .message = {"replica # has returned", backward},
       .odd_ends = ""},
      {.name = "has no backward and goes on",
       .body = in_forward(unused_then_goes_on),
       .message = {"replica # called pmean over 'data' at @ with (2) float32", backward},
       .lines = 2},
      {.name = "alone has a backward",
       .body = in_forward(used_by_one),
       .message = {"replica #" + backward, " called pmean over 'data' at @ with (2) float32"},
       .lines = 2},
      {.name = "uses another call's result",
       .body = in_forward(other_call),
       .message = {"replica #" + backward_of(2), " while replica", backward_of(3)},
       .lines = 2},
      {.name = "uses the result of another round",
       .body = in_forward(other_round),
       .message = {"replica #" + backward_of(2), " while replica", backward_of(3)}},
      {.name = "uses another call's gradient",
       .body = in_forward(other_gradient),
       .message = {"replica # called the backward of the backward of psum over 'data' at @ (call "
                   "2) (call 3), which is psum with (3) float32",
                   " called the backward of the backward of psum over 'data' at @ (call 4) (call "
                   "5), which is psum with (3) float32"}},
      {.name = "uses another map's result",
       .body = in_forward(other_map),
       .message = {"the backward of vmap over 'lane' at @ (call 1)",
                   "the backward of vmap over 'lane' at @ (call 2)"},
       .lines = 2},
  };
}

}  // namespace

std::vector<OutOfStep> ways_out_of_step() {
  std::vector<OutOfStep> ways = ways_in_forward();
  for (const auto& [name, act] : std::initializer_list<std::pair<std::string, Act>>{
           {"has another shape", other_shape},
           {"has another dtype", other_dtype},
           {"calls another operation", other_operation},
           {"has other groups", other_group},
           {"has thrown", throws}}) {
    OutOfStep way = *std::ranges::find(ways, name, &OutOfStep::name);
    way.name += " in its backward";
    way.body = in_backward(act);
    ways.push_back(way);
  }
  ways.push_back({.name = "skips a collective of its backward",
                  .body = in_backward(returns),
                  .message = {"replica # called psum over 'data' at @ with (2) float32",
                              " called psum over 'data' at @ with (3) float32"},
                  .lines = 2});
  return ways;
}
std::int64_t own_number(const OutOfStep& way) {
  return way.on_mesh ? axis_index({"row", "column"}) : axis_index("data");
}

Ending ending_of(const OutOfStep& way, std::int64_t odd) {
  const auto begin = std::chrono::steady_clock::now();
  Ending ending;
  try {
    way.body(odd);
  } catch (const Error& error) {
    ending = {.type = error.type(), .text = error.what(), .error = std::current_exception()};
  } catch (const std::exception& error) {
    ending = {.type = "foreign", .text = error.what(), .error = std::current_exception()};
  }
  ending.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return ending;
}

std::string fault_of(const Ending& ending, const OutOfStep& way, std::int64_t odd,
                     std::int64_t own) {
  const std::string& expected = own == odd ? way.odd_ends : way.others_end;
  const std::string who = str("replica ", own, " ended after ", ending.seconds, " s with ",
                              ending.type.empty() ? "no error" : ending.type + ": " + ending.text);
  if (ending.type != expected) return str(who, "; expected: ", expected);
  if (ending.seconds > static_cast<double>(kSoon.count())) return who + "; that is too late";
  const std::string missing = ending.type.empty() ? "" : missing_in(ending.text, way, odd);
  return missing.empty() ? "" : who + missing;
}

std::string missing_in(const std::string& text, const OutOfStep& way, std::int64_t odd) {
  const std::regex line("out_of_step\\.cpp:[0-9]+");
  std::set<std::string> lines;
  for (std::sregex_iterator found(text.begin(), text.end(), line), end; found != end; ++found) {
    lines.insert(found->str());
  }
  const std::string shown = std::regex_replace(text, line, "@");
  for (const std::string& part : way.message) {
    const std::string expected = std::regex_replace(part, std::regex("#"), name_of(way, odd));
    if (shown.find(expected) == std::string::npos) return "; it does not say: " + expected;
  }
  return lines.size() >= way.lines ? "" : str("; it names ", lines.size(), " lines");
}

}  // namespace lockstep::testing
