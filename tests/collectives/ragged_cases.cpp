#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
#include "tests/collectives/case_parts.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/refused.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<std::int64_t>;

// The example of JAX's documentation.
void ragged_example() {
  const bool first = me() == 0;
  const Tensor output = at::zeros({4}, at::kFloat);
  const Tensor result = ragged_all_to_all(
      first ? at::tensor({1.0, 2.0, 2.0}, at::kFloat) : at::tensor({3.0, 4.0, 0.0}, at::kFloat),
      output, numbers({0, 1}), first ? numbers({1, 2}) : numbers({1, 1}),
      first ? numbers({0, 0}) : numbers({1, 2}), first ? numbers({1, 1}) : numbers({2, 1}), "i");
  expect_equal(result,
               first ? at::tensor({1.0, 3.0, 0.0, 0.0}, at::kFloat)
                     : at::tensor({2.0, 2.0, 4.0, 0.0}, at::kFloat),
               "the ragged result");
  expect_equal(output, at::zeros({4}, at::kFloat), "the output that was passed");
}

// Two pieces a pair, in groups, trees of two dtypes: rows that are not written keep the output's
// values, and offsets of empty pieces do not matter.
void ragged_pieces() {
  const std::int64_t i = axis_index("i");
  const Tensor ids = numbers({10 * i, 10 * i + 1, 10 * i + 2});
  const Token operand{ids, ids.to(at::kHalf).view({3, 1}).expand({3, 2})};
  const Token output{at::full({5}, -1, at::kLong), at::full({5, 2}, -1, at::kHalf)};
  const bool first = i == 0 || i == 3;  // in its group
  const auto [id, state] = ragged_all_to_all(
      operand, output, numbers({2, 0, 99, 1}), numbers({1, 1, 0, 2}),
      first ? numbers({4, 0, -7, 2}) : numbers({2, 1, 0, 0}),
      first ? numbers({1, 1, 1, 1}) : numbers({0, 2, 0, 2}), "i", {.axis_index_groups = kGroups});
  const std::vector<Numbers> expected{
      {0, 20, 22, -1, 2}, {11, 12, 31, 32, -1}, {21, 22, 1, 2, -1}, {30, 10, 12, -1, 32}};
  expect_equal(id, numbers(expected[me()]), "the ragged ids in groups");
  expect_equal(state, id.to(at::kHalf).view({5, 1}).expand({5, 2}), "the ragged state");
}

// A row that goes to several replicas gathers their gradients; a row that was overwritten has none.
void ragged_gradients() {
  const Tensor zeros = at::zeros({2}, at::kLong);
  const Tensor ones = at::ones({2}, at::kLong);
  const auto loss = [&](const Token& x) {
    const Tensor result = ragged_all_to_all(x.id, x.state, zeros, ones,
                                            at::full({2}, axis_index("i"), at::kLong), ones, "i");
    return (result * static_cast<double>(axis_index("i") + 1)).sum();
  };
  const Token x{at::ones({2}, at::kDouble), at::ones({3}, at::kDouble)};
  const Token gradient = grad(loss)(x);
  expect_equal(gradient.id, at::tensor({3.0, 0.0}, at::kDouble), "the operand's gradient");
  expect_equal(gradient.state, at::tensor({0.0, 0.0, static_cast<double>(me()) + 1}, at::kDouble),
               "the output's gradient");
}

const std::string kCall = "ragged_all_to_all over 'i' (ragged_cases.cpp): ";

// Shapes and dtypes that do not fit are refused before anything is sent.
void wrong_shapes() {
  const std::int64_t n = axis_size("i");
  const Tensor x = at::ones({4, 2});
  const Tensor good = at::zeros({n}, at::kLong);
  const auto refused_tables = [&](const Tensor& bad, const std::string& rule) {
    const auto call = [&](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
      return [=] { (void)ragged_all_to_all(x, x, a, b, c, d, "i"); };
    };
    refused<ValueError>(kCall + "input_offsets " + rule, call(bad, good, good, good));
    refused<ValueError>(kCall + "send_sizes " + rule, call(good, bad, good, good));
    refused<ValueError>(kCall + "output_offsets " + rule, call(good, good, bad, good));
    refused<ValueError>(kCall + "recv_sizes " + rule, call(good, good, good, bad));
  };
  const auto shape = [&](const std::string& text) {
    return str("has shape ", text,
               "; it must have one dimension, of the group's size or a multiple of it, ", n);
  };
  refused_tables(Tensor(), "must be a dense tensor on the CPU");
  refused_tables(at::zeros({n}), "has dtype Float; it must be an integer type");
  refused_tables(at::zeros({n}, at::kBool), "has dtype Bool; it must be an integer type");
  refused_tables(at::zeros({}, at::kInt), shape("[]"));
  refused_tables(at::zeros({0}, at::kInt), shape("[0]"));
  refused_tables(at::zeros({n, 1}, at::kInt), shape(str("[", n, ", 1]")));
  if (n > 1) refused_tables(at::zeros({n + 1}, at::kInt), shape(str("[", n + 1, "]")));
  const Tensor twice = at::zeros({2 * n}, at::kLong);
  refused<ValueError>(
      str(kCall, "recv_sizes has length ", n, ", input_offsets has ", 2 * n, "; they must agree"),
      [&] { (void)ragged_all_to_all(x, x, twice, twice, twice, good, "i"); });

  const auto refused_pair = [&](const Tensor& operand, const Tensor& output,
                                const std::string& which) {
    refused<ValueError>(
        kCall + which + "; they must have one dtype and the same shape but for dimension 0",
        [&] { (void)ragged_all_to_all(operand, output, good, good, good, good, "i"); });
  };
  refused_pair(x, at::ones({4, 3}), "leaf 0 of operand is Float [4, 2], of output Float [4, 3]");
  refused_pair(x, at::ones({4, 2}, at::kLong),
               "leaf 0 of operand is Float [4, 2], of output Long [4, 2]");
  refused_pair(at::ones({}), at::ones({}), "leaf 0 of operand is Float [], of output Float []");
  using Leaves = std::vector<Tensor>;
  refused<ValueError>(
      "trees differ in structure at ragged_all_to_all's operand and output, the root: 2 and 1 "
      "elements",
      [&] {
        (void)ragged_all_to_all(Leaves{x, x}, Leaves{x}, good, good, good, good, "i");
      });
}

struct Numerals {
  std::int64_t input_offset, send_size, output_offset, recv_size;
};

// Each of `size` replicas sends each of them one row; but the last one gives other numbers for the
// first one.
void send_rows(std::int64_t place, std::int64_t size, const Numerals& last_to_first,
               const RaggedAllToAllOptions& options) {
  const auto& last = last_to_first;
  const auto table = [&](std::int64_t usual, std::int64_t unusual) {
    const Tensor values = at::full({size}, usual, at::kLong);
    if (place == size - 1) values[0].fill_(unusual);
    return values;
  };
  const Tensor x = at::ones({size, 2});
  (void)ragged_all_to_all(x, x, table(0, last.input_offset), table(1, last.send_size),
                          table(place, last.output_offset), table(1, last.recv_size), "i", options);
}

// Numbers that do not agree are refused on every replica, whoever gave them.
void wrong_numbers() {
  const std::int64_t n = axis_size("i");
  const std::int64_t last = n - 1;
  const auto refused_numbers = [&](const Numerals& numerals, const std::string& rule) {
    refused<ValueError>(kCall + rule, [&] { send_rows(axis_index("i"), n, numerals, {}); });
    const Tensor sum = at::full({3}, static_cast<double>(n));
    expect(psum(at::ones({3}), "i").equal(sum), "the sum after refused numbers");
  };
  const std::string sends = str("replica ", last, " sends replica 0 ");
  refused_numbers({0, -1, last, 1},
                  str("replica ", last, "'s send_sizes[0] is -1; it must not be negative"));
  refused_numbers({0, 2, last, 1},
                  str(sends, "2 rows (send_sizes[0]), but replica 0 expects 1 from replica ", last,
                      " (recv_sizes[", last, "])"));
  refused_numbers({0, 1, last, 2},
                  str("replica 0 sends replica ", last, " 1 row (send_sizes[", last,
                      "]), but replica ", last, " expects 2 from replica 0 (recv_sizes[0])"));
  for (const std::int64_t row : {n, std::int64_t{-1}}) {
    refused_numbers({row, 1, last, 1}, str(sends, "1 row from row ", row,
                                           " on (input_offsets[0]), but its operand has ", n));
    refused_numbers({0, 1, row, 1},
                    str(sends, "1 row for row ", row,
                        " on (output_offsets[0]), but the output of replica 0 has ", n));
  }
  if (n == 1) return;
  refused_numbers({0, 1, 0, 1}, str("rows from replica 0 (0 to 0) and from replica ", last,
                                    " (0 to 0) overlap in the output of replica 0"));
}

// In groups [[0, 2], [3, 1]] only the second one errs: it is refused, with its replicas' indices on
// the axis, and the first one is not.
void wrong_numbers_in_a_group() {
  const std::int64_t i = axis_index("i");
  const std::int64_t place = i == 0 || i == 3 ? 0 : 1;
  const bool errs = i == 3 || i == 1;
  const auto call = [&] { send_rows(place, 2, {0, 1, errs ? 0 : 1, 1}, {kGroups}); };
  if (errs) {
    refused<ValueError>(kCall +
                            "rows from replica 3 (0 to 0) and from replica 1 (0 to 0) overlap in "
                            "the output of replica 3",
                        call);
  } else {
    call();
  }
  expect(psum(at::ones({1}), "i").equal(at::full({1}, 4.0)), "the sum after a refused group");
}

}  // namespace

std::vector<Case> ragged_cases() {
  std::vector<Case> cases{
      {"ragged_all_to_all as documented", 2, ragged_example},
      {"ragged_all_to_all in pieces and groups", 4, ragged_pieces},
      {"gradients of ragged_all_to_all", 2, ragged_gradients},
      {"numbers that ragged_all_to_all refuses in one of two groups", 4, wrong_numbers_in_a_group}};
  add_cases(cases, "shapes that ragged_all_to_all refuses", {1, 2, 3}, wrong_shapes);
  add_cases(cases, "numbers that ragged_all_to_all refuses", {1, 2, 3}, wrong_numbers);
  return cases;
}

}  // namespace lockstep::testing
