#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/pargmax.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
#include "tests/collectives/case_parts.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/refused.h"

namespace lockstep::testing {
namespace {

// Rows become columns: replica i has number i of every row.
void transposed_matrix() {
  const Tensor column = at::arange(16, at::kLong).view({4, 4}).select(1, axis_index("i"));
  expect_equal(all_to_all(row(), "i", 0, 0), column, "all_to_all of the rows");
  expect_equal(pswapaxes(row(), "i", -1), column, "pswapaxes of the rows");
  expect_equal(all_to_all(row().view({4, 1}), "i", 0, 1, {.tiled = true}), column.view({1, 4}),
               "all_to_all of (4, 1), tiled,");
  const AllToAllOptions groups{.axis_index_groups = kGroups};
  const std::vector<std::vector<std::int64_t>> in_groups{
      {0, 1, 8, 9}, {14, 15, 6, 7}, {2, 3, 10, 11}, {12, 13, 4, 5}};
  expect_equal(all_to_all(row().view({2, 2}), "i", 0, 0, groups),
               numbers(in_groups[me()]).view({2, 2}), "all_to_all in groups");
  expect_equal(all_to_all(row(), "i", 0, 0, {.tiled = true, .axis_index_groups = kGroups}),
               numbers(in_groups[me()]), "all_to_all in groups, tiled,");
  expect_equal(pswapaxes(row().view({1, 2, 2}), "i", 1, {.axis_index_groups = kGroups}),
               numbers(in_groups[me()]).view({1, 2, 2}), "pswapaxes in groups");
  // Shapes as JAX has them: split_axis is removed, then concat_axis counts in the result.
  const Tensor moved = all_to_all(at::zeros({2, 4, 3}, at::kBool), "i", 1, 2);
  expect_equal(moved, at::zeros({2, 3, 4}, at::kBool), "all_to_all of booleans");
}

void permuted() {
  const std::int64_t i = axis_index("i");
  const Tensor x = numbers({i + 1, 10 * i});
  const std::vector<std::vector<std::int64_t>> ahead{{0, 0}, {1, 0}, {2, 10}, {3, 20}};
  expect_equal(ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}}), numbers(ahead[me()]),
               "ppermute one stage on");
  expect_equal(ppermute(x, "i", {}), numbers({0, 0}), "ppermute of nobody to nobody");
  expect_equal(ppermute(x, "i", {{1, 1}}), i == 1 ? x : numbers({0, 0}), "ppermute to oneself");
  std::vector<std::pair<int, std::size_t>> pairs;  // as loops make them
  for (int from = 0; from < 3; ++from) pairs.emplace_back(from, static_cast<std::size_t>(from) + 1);
  expect_equal(ppermute(x, "i", pairs), numbers(ahead[me()]), "ppermute along pairs of integers");
  const std::vector<std::int64_t> sources{2, 0, 3, 1};
  const std::int64_t source = sources[me()];
  expect_equal(pshuffle(x, "i", sources), numbers({source + 1, 10 * source}), "pshuffle");
  // A ring: after as many steps as there are replicas everything is home again.
  Token token{x, at::full({2}, i % 2 == 0, at::kBool)};
  for (int step = 0; step < 4; ++step) {
    token = ppermute(token, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
    const std::int64_t from = (i + 3 - step) % 4;
    expect_equal(token.id, numbers({from + 1, 10 * from}), "the token on the ring");
    expect_equal(token.state, at::full({2}, from % 2 == 0, at::kBool), "its state");
  }
}

void broadcasted() {
  const auto i = static_cast<double>(axis_index("i"));
  const std::map<std::string, Tensor> x{{"a", at::full({2}, i, at::kFloat)},
                                        {"b", at::full({}, axis_index("i"), at::kByte)},
                                        {"c", at::full({1, 0}, i, at::kFloat)}};
  const auto result = pbroadcast(x, "i", 2);
  expect_equal(result.at("a"), at::full({2}, 2, at::kFloat), "pbroadcast of 'a'");
  expect_equal(result.at("b"), at::full({}, 2, at::kByte), "pbroadcast of 'b'");
  expect_equal(result.at("c"), at::zeros({1, 0}, at::kFloat), "pbroadcast of 'c'");
  // The source gets all gradients, which weigh 1 to 4 here, the others none.
  const auto weighed = [&](const Tensor& at) { return ((i + 1) * pbroadcast(at, "i", 2)).sum(); };
  expect_equal(grad(weighed)(at::ones({2}, at::kDouble)),
               at::full({2}, axis_index("i") == 2 ? 10 : 0, at::kDouble),
               "the gradient of pbroadcast");
}

void extrema() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> values{{3, 7, 0, kInfinity, 1},
                                                {5, 7, 0, kNan, 0},
                                                {-1, 7, -0.0, 8, kNan},
                                                {5, 7, 0, -kInfinity, kNan}};
  const Tensor x = at::tensor(values[me()], at::kDouble).requires_grad_();
  const Tensor largest = pargmax(x, "i");
  expect_equal(largest, numbers({1, 0, 0, 1, 2}), "pargmax");
  expect_equal(pargmin(x, "i"), numbers({2, 0, 0, 1, 2}), "pargmin");
  expect(!largest.requires_grad() && !pargmin(x, "i").requires_grad(),
         "an index requires a gradient");
  const std::pair<Tensor, Tensor> tree{at::full({2}, me() >= 2, at::kBool),
                                       at::full({}, -axis_index("i"), at::kChar)};
  const auto [any, lowest] = pargmax(tree, "i");
  expect_equal(any, numbers({2, 2}), "pargmax of booleans");
  expect_equal(lowest, at::zeros({}, at::kLong), "pargmax of int8");
}

// Empty operands come back as they are, and all replicas meet: see out_of_step.cpp.
void empty_operands() {
  const std::int64_t n = axis_size("i");
  const Tensor table = at::zeros({n}, at::kLong);
  const std::optional<Tensor> nothing;
  expect(!psum(nothing, "i") && !pmean(nothing, "i") && !pmax(nothing, "i"), "no sum of nothing");
  const auto check = [&](const auto& tree, const Tensor& empty) {
    const auto same = [&](const auto& result, const Tensor& expected) {
      const Leaves leaves = tree_leaves(result);
      expect(leaves.size() == tree_leaves(tree).size(), "as many leaves as before");
      for (const Tensor& leaf : leaves) expect(leaf.sizes() == expected.sizes(), "another shape");
    };
    same(psum(tree, "i"), empty);
    same(psum_invariant(tree, "i"), empty);
    same(pvary(tree, "i"), empty);
    same(all_gather(tree, "i"), at::empty({n, n, 0}));
    same(psum_scatter(tree, "i"), at::empty({0}));
    same(all_to_all(tree, "i", 0, 0), empty);
    same(ppermute(tree, "i", {{0, 0}}), empty);
    same(pbroadcast(tree, "i", 0), empty);
    same(pargmax(tree, "i"), empty);
    same(ragged_all_to_all(tree, tree, table, table, table, table, "i"), empty);
  };
  const Tensor empty = at::empty({n, 0});
  check(Leaves{}, empty);
  check(std::map<std::string, Tensor>{{"w", empty}}, empty);
  psum_(empty, "i");
}

void wrong_axes() {
  const std::int64_t n = axis_size("i");
  const Tensor x = at::ones({n, 2 * n, 3 * n + 1});
  const std::string call = "all_to_all over 'i' (operator_cases.cpp): ";
  const std::string swap = "pswapaxes over 'i' (operator_cases.cpp): ";
  const std::string untiled = str("; untiled, it must be the group's size, ", n);
  refused<ValueError>(str(call, "split_axis 1 has length ", 2 * n, untiled),
                      [&] { (void)all_to_all(x, "i", 1, 0); });
  refused<ValueError>(str(call, "split_axis -1 has length ", 3 * n + 1, untiled),
                      [&] { (void)all_to_all(x, "i", -1, 0); });
  refused<ValueError>(str(swap, "axis 1 has length ", 2 * n, untiled),
                      [&] { (void)pswapaxes(x, "i", 1); });
  const std::string range = " is out of range; it must be in [-3, 2]";
  for (const std::int64_t axis : {3, -4}) {
    const AllToAllOptions tiled{.tiled = true};
    refused<ValueError>(str(call, "split_axis ", axis, range),
                        [&] { (void)all_to_all(x, "i", axis, 0, tiled); });
    refused<ValueError>(str(call, "concat_axis ", axis, range),
                        [&] { (void)all_to_all(x, "i", 0, axis, tiled); });
    refused<ValueError>(str(swap, "axis ", axis, range), [&] { (void)pswapaxes(x, "i", axis); });
  }
  refused<ValueError>(call + "split_axis 0 is out of range; the tensor has no dimensions",
                      [&] { (void)all_to_all(at::ones({}), "i", 0, 0); });
  if (n == 1) return;
  refused<ValueError>(str(call, "split_axis 2 has length ", 3 * n + 1,
                          "; tiled, it must be divisible by the group's size, ", n),
                      [&] { (void)all_to_all(x, "i", 2, 0, {.tiled = true}); });
  refused<ValueError>(
      str(call, "split_axis 0 has length 4; untiled, it must be the group's size, 2"),
      [&] { (void)all_to_all(x, "i", 0, 0, {.axis_index_groups = kGroups}); });
}

void wrong_indices() {
  const std::int64_t n = axis_size("i");
  const Tensor x = at::ones({2});
  const std::string call = "ppermute over 'i' (operator_cases.cpp): perm ";
  const auto last = n - 1;
  refused<ValueError>(
      str(call, "[(0, ", n, ")] names destination ", n, "; the axis has 0 to ", last), [&] {
        (void)ppermute(x, "i", {{0, n}});
      });
  refused<ValueError>(str(call, "[(-1, 0)] names source -1; the axis has 0 to ", last), [&] {
    (void)ppermute(x, "i", {{-1, 0}});
  });
  refused<ValueError>(str(call, "[(0, 0), (0, ", last, ")] names source 0 twice"), [&] {
    (void)ppermute(x, "i", {{0, 0}, {0, last}});
  });
  const std::string shuffle = "pshuffle over 'i' (operator_cases.cpp): perm ";
  refused<ValueError>(
      str(shuffle, "[] has 0 entries; it must be a permutation of all indices of the axis, 0 to ",
          n - 1),
      [&] { (void)pshuffle(x, "i", {}); });
  for (const std::int64_t source : {n, std::int64_t{-1}}) {
    const std::vector<std::int64_t> perm(static_cast<std::size_t>(n), source);
    refused<ValueError>(
        str(shuffle, "[", join(perm), "] names source ", source, "; the axis has 0 to ", last),
        [&] { (void)pshuffle(x, "i", perm); });
    refused<ValueError>(str("pbroadcast over 'i' (operator_cases.cpp): source ", source,
                            " is not on the axis, which has 0 to ", last),
                        [&] { (void)pbroadcast(x, "i", source); });
  }
  if (n == 1) return;
  refused<ValueError>(call + "[(0, 1), (2, 1)] names destination 1 twice", [&] {
    (void)ppermute(x, "i", {{0, 1}, {2, 1}});
  });
  refused<ValueError>(shuffle + "[0, 1, 0, 2] names source 0 twice", [&] {
    (void)pshuffle(x, "i", {0, 1, 0, 2});
  });
}

// These operators refuse the tensors and axes that psum refuses.
void wrong_tensors_and_axes() {
  const std::int64_t n = axis_size("i");
  const Tensor table = at::zeros({n}, at::kLong);
  const auto refused_everywhere = [&](const auto& kind, const AxisNames& axis, const Tensor& x,
                                      const std::string& rule) {
    using Error = std::remove_cvref_t<decltype(kind)>;
    const auto rest = " over " + axis.text() + " (operator_cases.cpp): " + rule;
    const auto expect_refused = [&](const std::string& operation, const auto& call) {
      refused<Error>(operation + rest, call);
    };
    expect_refused("all_to_all", [&] { (void)all_to_all(x, axis, 0, 0); });
    expect_refused("pswapaxes", [&] { (void)pswapaxes(x, axis, 0); });
    expect_refused("ppermute", [&] { (void)ppermute(x, axis, {}); });
    expect_refused("pshuffle", [&] { (void)pshuffle(x, axis, {0}); });
    expect_refused("pbroadcast", [&] { (void)pbroadcast(x, axis, 0); });
    expect_refused("pargmax", [&] { (void)pargmax(x, axis); });
    expect_refused("pargmin", [&] { (void)pargmin(x, axis); });
    expect_refused("ragged_all_to_all",
                   [&] { (void)ragged_all_to_all(x, x, table, table, table, table, axis); });
  };
  const Tensor x = at::ones({n});
  refused_everywhere(NameError(""), "j", x, "axis 'j' is not bound here; bound: 'i'");
  refused_everywhere(ValueError(""), "i", Tensor(), "leaf 0 is an undefined tensor");
  refused_everywhere(ValueError(""), "i", at::zeros({n}, at::kComplexDouble),
                     "dtype ComplexDouble is not one that collectives know");
  refused_everywhere(ValueError(""), "i", x.to_sparse(),
                     "leaf 0 is sparse; only dense tensors are supported");
  const AxisIndexGroups groups{{0, n}};
  const auto rest = str(" over 'i' (operator_cases.cpp): axis_index_groups [[0, ", n,
                        "]] names index ", n, "; the axis has 0 to ", n - 1);
  refused<ValueError>("all_to_all" + rest,
                      [&] { (void)all_to_all(x, "i", 0, 0, {.axis_index_groups = groups}); });
  refused<ValueError>("pswapaxes" + rest,
                      [&] { (void)pswapaxes(x, "i", 0, {.axis_index_groups = groups}); });
  refused<ValueError>("ragged_all_to_all" + rest, [&] {
    (void)ragged_all_to_all(x, x, table, table, table, table, "i", {groups});
  });
}

}  // namespace

std::vector<Case> operator_cases() {
  std::vector<Case> cases{{"all_to_all turns rows into columns", 4, transposed_matrix},
                          {"ppermute and pshuffle", 4, permuted},
                          {"pbroadcast", 4, broadcasted},
                          {"pargmax and pargmin, with ties and NaNs", 4, extrema}};
  add_cases(cases, "operands without leaves or elements", {1, 4}, empty_operands);
  add_cases(cases, "axes of all_to_all that do not fit", {1, 4}, wrong_axes);
  add_cases(cases, "permutations and sources that do not fit", {1, 4}, wrong_indices);
  add_cases(cases, "operators that move refuse what psum refuses", {1, 4}, wrong_tensors_and_axes);
  add_cases(cases, "refused moves leave replicas in step", {1, 4}, [] {
    still_in_step({wrong_axes, wrong_indices, wrong_tensors_and_axes});
  });
  return cases;
}

}  // namespace lockstep::testing
