#include "framework/maps/pmap.h"

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/collectives/refused.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using lockstep::testing::message_of;
using lockstep::testing::refusal;

namespace {

struct Pair {
  Tensor a, b;
};
LOCKSTEP_TREE(Pair, a, b)

Tensor twice(const Tensor& x) {
  return 2 * x;
}

}  // namespace

TEST_CASE("arguments are cut, broadcast or static, results stacked") {
  const Tensor xs = at::arange(24).view({2, 3, 4});
  const auto f = [](const Tensor& x, const Tensor& whole, int scale, const std::string& word) {
    return std::tuple(x * scale + static_cast<std::int64_t>(word.size()), whole.sum() + x.sum());
  };
  const auto by = [&](std::int64_t in, OutAxes out) {
    return pmap(f, {.in_axes = {in, std::nullopt, std::nullopt, std::nullopt}, .out_axes = out})(
        xs, at::ones({5}), 10, std::string("seven77"));
  };
  for (const std::int64_t in : {0, 1, 2, -1, -3}) {
    const auto [moved, sums] = by(in, {in, 0});
    CHECK(moved.equal(xs * 10 + 7));
    CHECK(sums.equal(xs.movedim(in, 0).flatten(1).sum(1) + 5.0));
  }
  const auto [first, all] = by(1, {std::nullopt, -1});
  CHECK(first.equal(xs.select(1, 0) * 10 + 7));
  CHECK(all.size(0) == 3);
}

TEST_CASE("static arguments reach the function as what they are") {
  const auto scaled = pmap([](const Tensor& x, auto by) { return x * by; });
  CHECK(scaled(at::ones({2}), 0.5).equal(at::full({2}, 0.5)));
  const auto sized = pmap([](const Tensor& x, const std::string& word) {
    return x * static_cast<std::int64_t>(word.size());
  });
  CHECK(sized(at::ones({2}), "four").equal(at::full({2}, 4.0)));
}

TEST_CASE("trees go in and come out; replicas know their index") {
  const auto f = [](const Pair& p) { return Pair{p.a + axis_index("i"), p.b * axis_size("i")}; };
  const Pair result = pmap(f)(Pair{at::zeros({4, 2}), at::ones({4}, at::kLong)});
  CHECK(result.a.equal(at::arange(4.0).view({4, 1}).expand({4, 2})));
  CHECK(result.b.equal(at::full({4}, 4, at::kLong)));
}

TEST_CASE("a function without results, and one without mapped arguments") {
  std::atomic<std::int64_t> sum{0};
  pmap([&] { sum += axis_index("i"); }, {.axis_size = 5})();
  CHECK(sum == 10);
  CHECK(pmap(twice,
             {.in_axes = {std::nullopt}, .out_axes = std::nullopt, .axis_size = 3})(at::ones({2}))
            .equal(at::full({2}, 2.0)));
}

TEST_CASE("a map without collectives is differentiable from outside") {
  const Tensor x = at::arange(3.0).requires_grad_();
  const auto square = pmap([](const Tensor& part) { return part * part; });
  CHECK(grad([&](const Tensor& all) { return square(all).sum(); })(x).equal(2 * at::arange(3.0)));
}

TEST_CASE("autograd's state and in-graph results pass through the threads") {
  const Tensor x = at::ones({3}).requires_grad_();
  CHECK(pmap(twice)(x).requires_grad());
  const c10::AutoGradMode no_grad(false);
  CHECK(!pmap(twice)(x).requires_grad());
}

TEST_CASE("the same call again gives the same bits, whatever else maps at the time") {
  const auto f = pmap([](const Tensor& x) { return psum(x.sin(), "i"); });
  const Tensor x = at::arange(5 * 1001, at::kFloat).view({5, 1001});
  const Tensor first = f(x);
  std::vector<std::thread> threads;
  std::atomic<int> same{0};
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5; ++j) same += f(x).equal(first) ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(same == 15);
}

TEST_CASE("a replica that throws ends the call with the root cause") {
  const auto start = std::chrono::steady_clock::now();
  const auto blocked = [](const Tensor& x) { return psum(x, "i"); };
  SECTION("an error of ours keeps its type and gains the replica") {
    const auto f = pmap([&](const Tensor& x) {
      if (axis_index("i") == 2) throw DataError("file is damaged");
      return blocked(x);
    });
    CHECK_THROWS_AS(f(at::ones({4})), DataError);
    CHECK_THROWS_WITH(f(at::ones({4})), "replica 2: file is damaged");
  }
  SECTION("another is nested with its text and its place") {
    const auto f = pmap([&](const Tensor& x) {
      if (axis_index("i") == 1) throw std::out_of_range("beyond");
      return blocked(x);
    });
    try {
      (void)f(at::ones({4}));
      FAIL("nothing was thrown");
    } catch (const ReplicaError& error) {
      CHECK_THAT(error.what(), Catch::Matchers::StartsWith(
                                   "replica 1: beyond (in pmap over 'i' at pmap_test.cpp:") &&
                                   Catch::Matchers::EndsWith(", arguments Float ())"));
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
    }
  }
  SECTION("LibTorch's errors come without their backtrace") {
    const auto f =
        pmap([&](const Tensor& x) { return axis_index("i") == 0 ? x.view({7}) : blocked(x); });
    try {
      (void)f(at::ones({4}));
      FAIL("nothing was thrown");
    } catch (const ReplicaError& error) {
      CHECK_THAT(error.what(), ContainsSubstring("replica 0: shape '[7]' is invalid"));
      CHECK(std::string(error.what()).find("frame #") == std::string::npos);
    }
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  // The next call is not disturbed.
  CHECK(pmap(blocked)(at::ones({4})).equal(at::full({4}, 4.0)));
}

TEST_CASE("calls that do not fit are refused, with the numbers and the call site") {
  const Tensor four = at::ones({4, 2});
  const std::string title = "pmap over 'i' (pmap_test.cpp): ";
  CHECK(refusal([&] { (void)pmap(twice)(at::ones({})); }) ==
        title +
            "leaf 0 of argument 0 has shape [], in_axes cuts it along dimension 0; the "
            "entry none gives it whole to every replica");
  CHECK(refusal([&] { (void)pmap(twice, {.in_axes = {2}})(four); }) ==
        title + "leaf 0 of argument 0 has shape [4, 2], in_axes cuts it along dimension 2");
  const auto add = [](const Tensor& a, const Tensor& b) { return a + b; };
  CHECK(refusal([&] { (void)pmap(add)(four, at::ones({3})); }) ==
        title +
            "leaf 0 of argument 0 has length 4 along dimension 0, but leaf 0 of argument 1 has "
            "length 3 along dimension 0; they must agree. The entry none in in_axes gives one "
            "whole to "
            "every replica");
  CHECK(refusal([&] { (void)pmap(twice, {.axis_size = 3})(four); }) ==
        title +
            "axis_size is 3, but leaf 0 of argument 0 has length 4 along dimension 0; they must "
            "agree. The entry none in in_axes gives one whole to every replica");
  CHECK(refusal([&] {
          (void)pmap(twice, {.in_axes = {0, 0}})(four);
        }) == title + "in_axes has 2 entries for 1 argument");
  CHECK(refusal([&] { (void)pmap([](int) {}, {.in_axes = {0}})(3); }) ==
        title +
            "in_axes: argument 0 is no tree of tensors: its entry must be none (P() in "
            "shard_map)");
  CHECK(refusal([&] { (void)pmap(twice, {.in_axes = {std::nullopt}})(four); }) ==
        title + "no argument is mapped, so that axis_size must be given");
  CHECK(refusal([&] {
          (void)pmap(twice)(at::ones({0, 2}));
        }) == title +
                  "leaf 0 of argument 0 has length 0 along dimension 0; a map needs at least one "
                  "replica");
  CHECK(refusal([&] { (void)pmap(twice, {.out_axes = 2})(four); }) ==
        title + "out_axes 2 is out of range for results of shape [2]");
  CHECK(refusal([&] {
          (void)pmap(twice, {.out_axes = {0, 0}})(four);
        }) == title + "out_axes: result 0 is one value, its entry has 2 parts");
  CHECK(refusal([&] { (void)pmap(twice, {.axis_name = ""})(four); }) ==
        "pmap over '' (pmap_test.cpp): axis_name must not be empty");
  CHECK(refusal([&] { (void)pmap(twice, {.axis_size = -1})(four); }) ==
        title + "axis_size is -1; it must not be negative");
  CHECK(refusal([&] {
          (void)pmap([](const Tensor&) { return at::ones({1 + axis_index("i")}); })(four);
        }) == title + "leaf 0 of the result is [1] Float on replica 0 and [2] Float on replica 1");
  CHECK(refusal([&] { (void)vmap(twice, {.axis_name = "lane", .in_axes = {2}})(four); }) ==
        "vmap over 'lane' (pmap_test.cpp): leaf 0 of argument 0 has shape [4, 2], in_axes cuts it "
        "along dimension 2");
}

TEST_CASE("undefined tensors are refused, shared or mapped, given or returned") {
  const auto two = [](const Tensor&) { return Tensor(); };
  for (const InAxes& in_axes : {InAxes{std::nullopt}, InAxes{0}}) {
    CHECK(refusal([&] { (void)pmap(twice, {.in_axes = in_axes, .axis_size = 2})(Tensor()); }) ==
          "pmap over 'i' (pmap_test.cpp): leaf 0 of argument 0 is an undefined tensor");
  }
  const std::map<std::string, Leaves> parameters{{"w", {at::ones({2}), Tensor()}}};
  CHECK(refusal([&] { (void)pmap([](const auto& p) { return p.at("w"); })(parameters); }) ==
        "pmap over 'i' (pmap_test.cpp): leaf ['w'][1] of argument 0 is an undefined tensor");
  for (const OutAxes& out_axes : {OutAxes(std::nullopt), OutAxes(0)}) {
    CHECK(refusal([&] { (void)pmap(two, {.out_axes = out_axes})(at::ones({2})); }) ==
          "pmap over 'i' (pmap_test.cpp): leaf 0 of replica 0's result is undefined");
  }
}

TEST_CASE("results that replicas build differently are refused, with the map and the replica") {
  const auto f = [](const Tensor& x) {
    return std::vector<Tensor>(axis_index("i") == 2 ? 2 : 1, x);
  };
  for (const OutAxes& out_axes : {OutAxes(std::nullopt), OutAxes(0)}) {
    const std::string text =
        message_of<ValueError>([&] { (void)pmap(f, {.out_axes = out_axes})(at::ones({3})); });
    CHECK_THAT(text, ContainsSubstring("pmap over 'i' at pmap_test.cpp:") &&
                         ContainsSubstring(": replicas 0 and 2: trees differ in structure at the "
                                           "result: 1 and 2 elements"));
  }
}

TEST_CASE("LibTorch's exceptions in a map name the replica, the call and the shapes that went in") {
  const auto f = [](const Tensor& x, const Tensor& w) {
    return axis_index("i") == 1 ? x.matmul(w.t()) : x.matmul(w);
  };
  const std::string text = message_of<ReplicaError>([&] {
    (void)pmap(f, {.in_axes = {0, std::nullopt}})(at::ones({2, 4, 3}), at::ones({3, 2}));
  });
  CHECK_THAT(text,
             ContainsSubstring("replica 1: mat1 and mat2 shapes cannot be multiplied (4x3 and "
                               "2x3) (in pmap over 'i' at pmap_test.cpp:") &&
                 ContainsSubstring(", arguments Float (4, 3), Float (3, 2))"));
  // LibTorch's std::runtime_error gains the place, too.
  const auto backward = [](const Tensor& x) {
    x.detach().requires_grad_().backward();  // refused: it begins at three values
    return x;
  };
  const auto ends = [](const auto& of, const std::string& rule) {
    const std::string message = message_of<ReplicaError>([&] { (void)pmap(of)(at::ones({1, 3})); });
    CHECK_THAT(message, ContainsSubstring(rule) &&
                            ContainsSubstring(" (in pmap over 'i' at pmap_test.cpp:") &&
                            Catch::Matchers::EndsWith(", arguments Float (3))"));
  };
  ends([](const Tensor& x) { return x.view({7}); }, "is invalid for input of size 3");
  ends(backward, "grad can be implicitly created only for scalar outputs");
}
