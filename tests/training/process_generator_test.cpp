#include "framework/training/process_generator.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Of LibTorch's modules, initialized as they are.
class LibTorchNet : public torch::nn::Module {
 public:
  LibTorchNet() {
    register_module("linear", torch::nn::Linear(40, 30));
    register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)));
    register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(8, 9).num_layers(2)));
    register_module("attention", torch::nn::TransformerEncoderLayer(16, 4));
    register_parameter("one", at::randn({1}));
  }
};

Parameters initialized(std::uint64_t seed) {
  return copies(*seeded(seed, [] { return std::make_shared<LibTorchNet>(); }));
}

}  // namespace

TEST_CASE(
    "a seeded initialization gives the same module, whatever was drawn before and beside it") {
  const Quiet quiet;
  const Parameters expected = initialized(3);
  CHECK(first_difference(initialized(4), expected) != "");
  (void)at::rand({17});
  CHECK(first_difference(initialized(3), expected) == "");

  const auto check_all = [&] {
    const std::string different = first_difference(initialized(3), expected);
    if (!different.empty()) throw Error("another " + different);
  };
  for (int round = 0; round < 3; ++round) pmap(check_all, {.axis_size = 5})();
  vmap(check_all, {.axis_size = 3})();
  for (const Backend backend : {Backend::automatic, Backend::gloo}) {
    for (const std::int64_t workers : {4, 2, 1}) {
      LaunchOptions options = threads(4, backend);
      options.workers = workers;
      CHECK(launch(check_all, options) == 0);
    }
  }
}

TEST_CASE("after a seeded initialization the generator is what it was") {
  const SeededInitialization all(0);  // so that the test leaves no trace
  const std::vector<at::Tensor> expected{at::randn({1}), at::randn({1}), at::randn({40}),
                                         at::rand({3})};
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(0);
  const auto check = [&](std::size_t i, const at::Tensor& drawn) {
    CHECK(drawn.equal(expected[i]));
    (void)initialized(7);
  };
  check(0, at::randn({1}));  // which leaves the other one of two normal samples
  check(1, at::randn({1}));
  {
    const SeededInitialization outer(1);
    const at::Tensor once = at::rand({5});
    const SeededInitialization inner(1);
    CHECK(at::rand({5}).equal(once));
  }
  check(2, at::randn({40}));
  check(3, at::rand({3}));
}

TEST_CASE("a seeded initialization ends where it throws") {
  CHECK_THROWS_AS(seeded(1, []() -> int { throw ValueError("no"); }), ValueError);
  (void)pmap([] { return seeded(1, [] { return at::rand({1}); }); }, {.axis_size = 2})();
}

TEST_CASE("who waits for others in a seeded initialization is told, instead of waiting for ever") {
  constexpr const char* kReason =
      "not while SeededInitialization lives, for whose end other threads may wait";
  (void)pmap(
      [&] {
        const std::string message =
            message_of<Error>([] { (void)seeded(1, [] { return psum(at::zeros({}), "i"); }); });
        expect_contains(message, "psum over 'i'");
        expect_contains(message, kReason);
        return psum(at::zeros({}), "i");
      },
      {.axis_size = 3})();
  const std::string message = message_of<Error>([] {
    (void)seeded(1, [] { return pmap([] { return at::rand({1}); }, {.axis_size = 2})(); });
  });
  CHECK_THAT(message, ContainsSubstring("pmap over 'i'"));
  CHECK_THAT(message, ContainsSubstring(kReason));
  CHECK_THAT(message_of<Error>([] {
               (void)seeded(1, [] { return launch([] {}, {.mode = LaunchMode::threads}); });
             }),
             ContainsSubstring(kReason));
}

TEST_CASE("draws from the process' generator are noticed, whoever draws") {
  const SeededInitialization all(0);  // so that the test leaves no trace
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  (void)at::rand({1});
  DrawWatch::note_initialization();
  DrawWatch watch;
  CHECK_FALSE(watch.look());
  (void)at::rand({1});
  CHECK(watch.look());
  CHECK_FALSE(watch.look());
  (void)at::rand({624});  // as many words as the generator has: its place is what it was
  CHECK(watch.look());
  (void)at::randn({1});
  CHECK(watch.look());
  (void)at::randn({1});  // the other one of two samples: no word is drawn
  CHECK(watch.look());
  generator.set_current_seed(9);
  CHECK_FALSE(watch.look());
  (void)at::rand({1});
  CHECK(watch.look());
  (void)at::zeros({3}).uniform_(0, 1, at::detail::createCPUGenerator(1));
  CHECK_FALSE(watch.look());
  (void)initialized(5);
  CHECK_FALSE(watch.look());
  (void)at::rand({1});
  DrawWatch::note_initialization();
  CHECK_FALSE(watch.look());
}
