#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
#include "tests/collectives/case_parts.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/refused.h"

namespace lockstep::testing {
namespace {

struct Line {
  Tensor w, b;
};
LOCKSTEP_TREE(Line, w, b)

void scaled_sum() {
  const std::int64_t n = axis_size("i");
  const Tensor x = at::arange(n, at::kFloat).select(0, me());
  expect_equal(psum(2 * x, "i"), at::full({}, n * (n - 1), at::kFloat), "the scaled sum");
}

// Each replica's own number counts.
void reduced_numbers() {
  const std::int64_t n = axis_size("i");
  const double size = static_cast<double>(n);
  expect(psum(1, "i") == n && psum(true, "i") == n, "psum(1)");
  expect(psum(me(), "i") == n * (n - 1) / 2, "psum of the index");
  expect(psum(0.5 + static_cast<double>(me()), "i") == size * size / 2, "psum of doubles");
  expect(psum(1.5F, "i") == 1.5F * static_cast<float>(n), "psum of floats");
  expect(pmean(me(), "i") == (size - 1) / 2, "pmean of the index");
  expect(pmean(static_cast<float>(me()), "i") == static_cast<float>(n - 1) / 2, "pmean of floats");
  expect(pmax(me(), "i") == n - 1 && pmin(me(), "i") == 0, "pmax and pmin of the index");
  expect(pmax(-0.5 * static_cast<double>(me()), "i") == 0, "pmax of doubles");
  expect(pmax(me() == 0, "i") && pmin(me() == 0, "i") == (n == 1), "pmax and pmin of booleans");
  expect(std::isnan(pmax(me() == n - 1 ? std::nan("") : 1.0, "i")), "pmax of a NaN");
  static_assert(std::is_same_v<decltype(psum(std::int8_t{1}, "i")), std::int64_t>);
  static_assert(std::is_same_v<decltype(psum(1.0F, "i")), float>);
  static_assert(std::is_same_v<decltype(pmean(1, "i")), double>);
  static_assert(std::is_same_v<decltype(pmax(std::uint8_t{1}, "i")), std::uint8_t>);
  refused<ValueError>(
      "psum over 'i' (example_cases.cpp): 9223372036854775808 is beyond the numbers of int64, in "
      "which it works",
      [] { (void)psum(std::uint64_t{1} << 63, "i"); });
}

void numbers_in_groups() {
  const std::int64_t group = me() == 2 ? 1 : 3;
  const AxisIndexGroups uneven{{2}, {3, 0, 1}};
  const std::int64_t sum = me() == 2 ? 2 : 4;
  expect(psum(1, "i", uneven) == group, "psum(1) in groups");
  expect(psum(me(), "i", uneven) == sum, "psum of the index in groups");
  expect(psum(me(), "i", {{2}, {3, 0, 1}}) == sum, "the same as a list");
  expect(psum(me(), "i", {.axis_index_groups = uneven}) == sum, "the same as an option");
  expect(pmean(me(), "i", uneven) == static_cast<double>(sum) / static_cast<double>(group),
         "pmean of the index in groups");
  expect(pmax(me(), "i", uneven) == (me() == 2 ? 2 : 3), "pmax of the index in groups");
  expect(pmin(me(), "i", uneven) == (me() == 2 ? 2 : 0), "pmin of the index in groups");
  expect_equal(psum(at::full({}, me(), at::kLong), "i", uneven), at::full({}, sum, at::kLong),
               "psum of a tensor in groups");
}

// One step of gradient descent on the line; the numbers are worked out by hand.
void pmean_step(at::ScalarType type, double tolerance) {
  const std::map<std::int64_t, std::pair<double, double>> expected{
      {1, {1.085, 0.04}}, {2, {1.385, 0.08}}, {4, {2.625, 0.16}}, {8, {7.665, 0.32}}};
  const std::int64_t n = axis_size("i");
  const Tensor xs = at::arange(4 * n, type).view({n, 4, 1});
  const Tensor ys = 2 * xs + 0.5;
  const auto loss = [](const Line& line, const Tensor& x, const Tensor& y) {
    return (line.w * x + line.b - y).pow(2).mean();
  };
  const Line line{at::ones({}, type), at::full({}, 0, type)};
  const auto [value, own] = value_and_grad(loss)(line, xs.select(0, me()), ys.select(0, me()));
  const Line gradient = pmean(own, "i");
  const double w = (line.w - 0.01 * gradient.w).item().toDouble();
  const double b = (line.b - 0.01 * gradient.b).item().toDouble();
  expect(std::abs(w - expected.at(n).first) < tolerance &&
             std::abs(b - expected.at(n).second) < tolerance,
         str("w is ", w, ", b ", b));
  expect(std::abs((pmean(value, "i") - loss(line, xs, ys)).item().toDouble()) < 100 * tolerance,
         "the mean of the losses is not the loss of all");
}

void scatter_and_gather() {
  expect_equal(psum_scatter(row(), "i"), numbers({24, 28, 32, 36}).select(0, me()), "untiled");
  expect_equal(psum_scatter(row(), "i", {.tiled = true}),
               numbers({24, 28, 32, 36}).narrow(0, me(), 1), "tiled");
  const Tensor in_groups = numbers({8, 10, 20, 22, 12, 14, 16, 18}).view({4, 2});
  expect_equal(psum_scatter(row(), "i", {.tiled = true, .axis_index_groups = kGroups}),
               in_groups.select(0, me()), "tiled in groups");

  const Tensor scalar = at::arange(4, at::kLong).select(0, me());
  expect_equal(all_gather(scalar, "i"), numbers({0, 1, 2, 3}), "gathered");
  const Tensor gathered =
      me() % 2 == 0 ? numbers({0, 1, 2, 3, 8, 9, 10, 11}) : numbers({12, 13, 14, 15, 4, 5, 6, 7});
  expect_equal(all_gather(row(), "i", {.axis_index_groups = kGroups}), gathered.view({2, 4}),
               "gathered in groups");
}

void sharded_sum() {
  const auto part = shard(3, axis_size("i"), me());
  const Tensor y = at::tensor({1.0F, 2.0F, 3.0F}).narrow(0, part.offset, part.size);
  expect_equal(psum(y.sum(), "i"), at::full({}, 6, at::kFloat), "the sum");
}

void vdot(at::ScalarType type, double tolerance) {
  Draw draw(Key(11).fold("vdot"));
  const Tensor x = random_tensor(draw, {4001, 3}, at::kFloat).to(at::kDouble);
  const Tensor y = random_tensor(draw, {4001, 3}, at::kFloat).to(at::kDouble);
  const double serial = (x * y).sum().item().toDouble();
  const auto part = shard(x.size(0), axis_size("i"), me());
  const auto own = [&](const Tensor& all) {
    return all.narrow(0, part.offset, part.size).to(type);
  };
  const double result = psum((own(x) * own(y)).sum(), "i").item().toDouble();
  expect(std::abs(result - serial) <= tolerance * std::abs(serial),
         str("seed 11: vdot is ", result, ", serially ", serial));
}

// The gradient inside the map is the replica's own; the pmean of that is the whole batch's.
void gradient_of_whole_batch() {
  Draw draw(Key(12).fold("whole batch"));
  const std::int64_t n = axis_size("i");
  const std::vector<Tensor> parameters{random_tensor(draw, {3, 5}, at::kDouble) / 4000,
                                       random_tensor(draw, {5}, at::kDouble) / 4000};
  const Tensor x = random_tensor(draw, {6 * n, 3}, at::kDouble) / 100;
  const Tensor y = random_tensor(draw, {6 * n}, at::kDouble) / 100;
  const auto loss = [](const std::vector<Tensor>& p, const Tensor& in, const Tensor& out) {
    return (in.matmul(p[0]).tanh().matmul(p[1]) - out).pow(2).mean();
  };
  const auto [whole_loss, whole] = value_and_grad(loss)(parameters, x, y);
  const auto own =
      value_and_grad(loss)(parameters, x.narrow(0, 6 * me(), 6), y.narrow(0, 6 * me(), 6));
  const auto [value, gradients] = pmean(own, "i");
  expect(at::allclose(value, whole_loss, 1e-12, 0), "seed 12: the losses differ");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    expect(at::allclose(gradients[i], whole[i], 1e-11, 1e-14),
           lockstep::str("seed 12: gradient ", i, " is ", gradients[i], ", not ", whole[i]));
  }
  // A pmean of the loss inside the function changes nothing: its gradient is the replica's own,
  // too.
  const auto mean_loss = [&](const std::vector<Tensor>& p) {
    return pmean(loss(p, x.narrow(0, 6 * me(), 6), y.narrow(0, 6 * me(), 6)), "i");
  };
  const auto through_pmean = pmean(grad(mean_loss)(parameters), "i");
  expect(at::allclose(through_pmean[0], whole[0], 1e-11, 1e-14),
         "seed 12: the gradient of the mean loss");
}

void trees_and_names() {
  using Nested = std::pair<std::map<std::string, Line>, std::tuple<std::optional<Tensor>, Tensor>>;
  const auto scalar = [](auto value) { return at::full({}, value, at::kDouble); };
  const auto one = static_cast<double>(me() + 1);
  const Nested x{{{"a", {scalar(one), scalar(-one)}}, {"b", {at::ones({2}, at::kBool), scalar(0)}}},
                 {std::nullopt, at::full({3}, me(), at::kInt)}};
  const Nested sum = psum(x, AxisNames{"i"});
  const Nested largest = pmax(x, std::string("i"));
  const auto n = axis_size({"i"});
  expect_equal(sum.first.at("a").w, scalar(n * (n + 1) / 2), "a.w");
  expect_equal(sum.first.at("b").w, at::full({2}, n, at::kLong), "b.w");
  expect_equal(std::get<1>(sum.second), at::full({3}, n * (n - 1) / 2, at::kInt),
               "the tuple's sum");
  expect(!std::get<0>(sum.second).has_value(), "an empty optional came back with a tensor");
  expect_equal(largest.first.at("a").w, scalar(n), "a.w's maximum");
  expect_equal(largest.first.at("a").b, scalar(-1), "a.b's maximum");
  expect(psum(std::vector<Tensor>{}, "i").empty(), "a tree without leaves came back with some");
}

// The maximum of booleans is "any", the minimum "all", and a NaN anywhere is the result.
void extremes() {
  const std::int64_t n = axis_size("i");
  const Tensor only_last = at::full({1}, me() == n - 1, at::kBool);
  expect_equal(pmax(only_last, "i"), at::full({1}, true, at::kBool), "any");
  expect_equal(pmin(only_last, "i"), at::full({1}, n == 1, at::kBool), "all");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = at::tensor({me() == 0 ? nan : 1.0, me() == n - 1 ? nan : 1.0, 1.0});
  for (const Tensor& result : {pmax(x, "i"), pmin(x, "i")}) {
    expect(result.isnan().to(at::kInt).equal(at::tensor({1, 1, 0}, at::kInt)), "a NaN was lost");
  }
}

// One element for each order of values whose sum depends on how they are added: any other tree
// gives another sum somewhere.
void canonical_order() {
  const auto n = static_cast<std::size_t>(axis_size("i"));
  std::vector<double> values{-0x1p53, 1, 3, 5, 0x1p53};
  std::vector<double> mine;
  std::vector<double> sums;
  do {
    const std::vector<double>& v = values;
    mine.push_back(v[static_cast<std::size_t>(me())]);
    const double pair = v[0] + v[1];
    const double four = pair + (v[2] + v[3]);
    sums.push_back(std::array{v[0], pair, pair + v[2], four, four + v[4]}[n - 1]);
  } while (std::next_permutation(values.begin(), values.end()));
  const auto tensor = [](const std::vector<double>& numbers) {
    return at::tensor(numbers, at::kDouble);
  };
  expect(same_bits(psum(tensor(mine), "i"), tensor(sums)), "another order of adding");
}

}  // namespace

std::vector<Case> example_cases() {
  std::vector<Case> cases;
  add_cases(cases, "scaled_sum", {1, 2, 3, 4, 8}, scaled_sum);
  add_cases(cases, "numbers", {1, 2, 4, 5}, reduced_numbers);
  add_cases(cases, "numbers in groups", {4}, numbers_in_groups);
  add_cases(cases, "pmean step in float64", {1, 2, 4, 8}, [] { pmean_step(at::kDouble, 1e-12); });
  add_cases(cases, "pmean step in float32", {1, 2, 4, 8}, [] { pmean_step(at::kFloat, 2e-6); });
  add_cases(cases, "psum_scatter and all_gather", {4}, scatter_and_gather);
  add_cases(cases, "psum of a sum", {1, 3}, sharded_sum);
  add_cases(cases, "vdot in float32", {8}, [] { vdot(at::kFloat, 1e-5); });
  add_cases(cases, "vdot in float64", {8}, [] { vdot(at::kDouble, 1e-12); });
  add_cases(cases, "gradient of the whole batch", {1, 2, 4}, gradient_of_whole_batch);
  add_cases(cases, "trees, and ways to name an axis", {1, 3}, trees_and_names);
  add_cases(cases, "any, all and NaN", {1, 2, 5}, extremes);
  add_cases(cases, "the canonical order", {1, 2, 3, 4, 5}, canonical_order);
  return cases;
}

}  // namespace lockstep::testing
