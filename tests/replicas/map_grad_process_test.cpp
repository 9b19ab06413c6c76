// Derivatives taken outside of maps that span a job.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/replicas/launch.h"
#include "framework/replicas/pmap.h"
#include "framework/replicas/vmap.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/replicas/launched.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr LaunchMode kModes[] = {LaunchMode::processes, LaunchMode::threads};

const char* name_of(LaunchMode mode) {
  return mode == LaunchMode::processes ? "processes" : "threads";
}

// Runs `body` in every member of a job, which has to end well.
void check_in_jobs(std::int64_t members, const std::function<void()>& body) {
  for (const LaunchMode mode : kModes) {
    const Ended ended = launched(body, {.replicas = members, .mode = mode});
    INFO(members << " " << name_of(mode) << ": " << ended.err);
    CHECK(ended.status == 0);
  }
}

// Runs `body` in a job of two, which a CollectiveMismatch has to end.
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

}  // namespace

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
