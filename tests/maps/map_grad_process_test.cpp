// Derivatives taken outside of maps that span a job.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Runs `body` in every member of a job, and checks that the job ends well.
void check_in_jobs(std::int64_t members, const std::function<void()>& body) {
  for (const LaunchMode mode : kModes) check_launched(body, {.replicas = members, .mode = mode});
}

// Runs `body` in a job of two, and checks that a CollectiveMismatch ends the job.
void check_mismatch(const std::function<void()>& body, const std::vector<std::string>& parts) {
  for (const LaunchMode mode : kModes) {
    const Ended ended = launched(body, {.replicas = 2, .mode = mode});
    INFO(name_of(mode) << ": " << ended.err);
    CHECK(ended.status == 3);
    CHECK_THAT(ended.err, ContainsSubstring("CollectiveMismatch"));
    for (const std::string& part : parts) CHECK_THAT(ended.err, ContainsSubstring(part));
  }
}

Tensor product(const Tensor& w, const Tensor& x) {
  return pmean((w * x).sin() + x, "i");
}

// Returns one part for each of the job's replicas, `each` of them a member.
Tensor all_parts(std::int64_t each) {
  return (at::arange(6.0).view({6, 1}) / 7 + at::ones({6, 3}))
      .narrow(0, 0, each * axis_size("data"));
}

Tensor own_parts(std::int64_t each) {
  return all_parts(each).narrow(0, axis_index("data") * each, each);
}

}  // namespace

TEST_CASE("jobs: the gradient through a shared result is the whole batch's, not one a member") {
  check_in_jobs(2, [] {
    const Tensor xs = at::full({1}, axis_index("data") == 0 ? 1.0 : 3.0);
    const auto mean_loss = [&](const Tensor& w) {
      return pmap([](const Tensor& own, const Tensor& x) { return pmean(own * x, "i"); },
                  {.in_axes = {std::nullopt, 0}, .out_axes = std::nullopt})(w, xs)
          .sum();
    };
    const Tensor gradient = grad(mean_loss)(at::ones({}));
    expect(gradient.equal(at::full({}, 2.0)), str("pmap: ", gradient.item().toDouble()));
    const auto by_mesh = [&](const Tensor& w) {
      return shard_map([](const Tensor& own, const Tensor& x) { return pmean(own * x, "i"); },
                       Mesh({{"i", 2}}), {P(), P("i")}, P())(w, xs)
          .sum();
    };
    const Tensor again = grad(by_mesh)(at::ones({}));
    expect(again.equal(at::full({}, 2.0)), str("shard_map: ", again.item().toDouble()));
  });
}

TEST_CASE("jobs: gradients through a shared result have the bits of one process") {
  check_in_jobs(3, [] {
    const std::int64_t each = 2;
    const Tensor w = at::tensor({0.3, -1.7, 2.1});
    const auto weighed = [](const Tensor& result) { return (result * result).sum(); };
    const auto loss_of = [&](const auto& map, const Tensor& xs) {
      return [&, xs](const Tensor& at) { return weighed(map(at, xs)); };
    };
    // In a job a vmap is the replica's own: as many lanes as the job has replicas.
    const auto in_one = vmap(product, {.in_axes = {std::nullopt, 0}, .out_axes = std::nullopt});
    const Tensor expected = grad(loss_of(in_one, all_parts(each)))(w);
    const auto by_pmap = pmap(product, {.in_axes = {std::nullopt, 0}, .out_axes = std::nullopt});
    expect(grad(loss_of(by_pmap, own_parts(each)))(w).equal(expected), "pmap");
    const auto by_mesh =
        shard_map([](const Tensor& own, const Tensor& x) { return product(own, x[0]); },
                  Mesh({{"i", each * axis_size("data")}}), {P(), P("i")}, P());
    expect(grad(loss_of(by_mesh, own_parts(each)))(w).equal(expected), "shard_map");
    // The second derivative is the same, too.
    const auto twice = [&](const auto& map, const Tensor& xs) {
      return grad([&](const Tensor& at) { return grad(loss_of(map, xs))(at).sum(); })(w);
    };
    expect(twice(by_pmap, own_parts(each)).equal(twice(in_one, all_parts(each))), "second");
  });
}

TEST_CASE("jobs: what members share along an axis counts once, what they do not share for each") {
  check_in_jobs(2, [] {
    const double member = static_cast<double>(axis_index("data"));
    const auto f = [](const Tensor& w, const Tensor& x) {
      const Tensor y = w * x;
      return std::tuple(y, psum(y, "rows"), psum(y, "columns"), psum(y, {"rows", "columns"}));
    };
    // Members are the rows; each has two columns, with 1 + row + 2 column.
    const Tensor x = at::tensor({1 + member, 3 + member}).view({1, 2});
    const auto gradient_of = [&](std::size_t element) {
      return grad([&](const Tensor& w) {
               const auto [own, down, across, all] =
                   shard_map(f, Mesh({{"rows", 2}, {"columns", 2}}), {P(), P("rows", "columns")},
                             {P("rows", "columns"), P(none, "columns"), P("rows"), P()})(w, x);
               return std::vector<Tensor>{own, down, across, all}[element].sum();
             })(at::ones({}))
          .item()
          .toDouble();
    };
    // The derivative of the whole result is the sum of x, whoever adds it up.
    for (const std::size_t element : {0U, 1U, 2U, 3U}) {
      expect(gradient_of(element) == 10, str("element ", element, ": ", gradient_of(element)));
    }
  });
}

TEST_CASE("jobs: a captured tensor's gradient is refused, an argument's is not") {
  check_in_jobs(2, [] {
    const Tensor xs = at::ones({2, 3});
    const Tensor a = at::ones({3}).requires_grad_();
    const Tensor b = at::ones({3}).requires_grad_();
    const bool is_first = axis_index("data") == 0;
    const Tensor loss =
        pmap([&](const Tensor& x) { return is_first ? x * a * b : x * b * a; })(xs).sum();
    const std::string text = message_of<ValueError>([&] { loss.backward(); });
    expect(text.find("the backward of pmap over 'i' at map_grad_process_test.cpp:") == 0 &&
               text.find("captured a tensor of shape [3]") != std::string::npos &&
               text.find("in_axes entry std::nullopt") != std::string::npos,
           text);
    expect(!a.grad().defined() && !b.grad().defined(), "gradients");
    pmap([](const Tensor& x, const Tensor& own, const Tensor& other) { return x * own * other; },
         {.in_axes = {0, std::nullopt, std::nullopt}})(xs, a, b)
        .sum()
        .backward();
    expect(a.grad().equal(at::full({3}, 4.0)), "of the argument");
    // A vmap's lanes are this member's alone.
    vmap([&](const Tensor& x) { return x * b; })(xs).sum().backward();
    expect(b.grad().equal(at::full({3}, 6.0)), "of what lanes captured");
  });
}

TEST_CASE("jobs: members that differentiate a map by different arguments are out of step") {
  check_mismatch(
      [] {
        const bool is_first = axis_index("data") == 0;
        (void)pmap(product, {.in_axes = {std::nullopt, 0}})(
            at::ones({}).requires_grad_(is_first), at::ones({2}).requires_grad_(!is_first));
      },
      {"replica 0 called pmap over 'i' at map_grad_process_test.cpp:",
       "differentiated by leaf 0 of its arguments", "differentiated by leaf 1 of its arguments"});
}

TEST_CASE("jobs: backwards of different maps are out of step, also of one in a loop") {
  check_mismatch(
      [] {
        const Tensor x = at::ones({1}).requires_grad_();
        std::vector<Tensor> results;
        for (int round = 0; round < 2; ++round) {
          results.push_back(pmap([](const Tensor& part) { return psum(part, "i"); })(x));
        }
        results[axis_index("data") == 0 ? 0 : 1].sum().backward();
      },
      {"replica 0 called the backward of pmap over 'i' at map_grad_process_test.cpp:", " (call 1)",
       "replica 1 called the backward of pmap over 'i' at map_grad_process_test.cpp:",
       " (call 2)"});
}

TEST_CASE("jobs: a member may run maps of its own between those that span the job") {
  check_in_jobs(2, [] {
    for (int round = 0; round < 2; ++round) {
      if (axis_index("data") == 0) (void)vmap([](const Tensor& x) { return 2 * x; })(at::ones({2}));
      const auto sum = [](const Tensor& x) { return psum(x, "i"); };
      expect(pmap(sum)(at::ones({2})).equal(at::full({2}, 4.0)), "the sum");
      const Tensor gradient =
          grad([&](const Tensor& x) { return pmap(sum)(x).sum(); })(at::ones({2}));
      expect(gradient.equal(at::full({2}, 4.0)), "its gradient");
    }
  });
}
