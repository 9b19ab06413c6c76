#include "framework/training/dropout.h"

#include <cmath>
#include <sstream>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/training/data_parallel.h"
#include "framework/training/process_generator.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/random_models.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// The lockstep::Dropouts of replica `replica` as plain functions.
class DropoutByHand {
 public:
  DropoutByHand(std::uint64_t seed, std::int64_t replica)
      : key_(Key(seed).fold("dropout").fold(static_cast<std::uint64_t>(replica))) {}
  [[nodiscard]] at::Tensor operator()(const at::Tensor& input, double p, std::uint64_t step,
                                      std::uint64_t microbatch, const std::string& path,
                                      std::uint64_t call) const {
    return dropout(input, p, key_.fold(step).fold(microbatch).fold(path).fold(call));
  }

 private:
  Key key_;
};

}  // namespace

TEST_CASE("dropout drops with its probability, and keeps the mean") {
  constexpr std::int64_t kCount = 1'000'000;
  const at::Tensor ones = at::ones({kCount}, at::kDouble);
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor dropped = dropout(ones, p, Key(5));
    const at::Tensor is_zero = dropped.eq(0);
    const double share = is_zero.to(at::kDouble).mean().item<double>();
    const double deviation = std::sqrt(p * (1 - p) / static_cast<double>(kCount));
    CHECK(std::abs(share - p) < 5 * deviation);
    CHECK(dropped.masked_select(is_zero.logical_not()).eq(1 / (1 - p)).all().item<bool>());
    // Neighbours, at any distance, and other keys know nothing of each other.
    const auto both = [&](const at::Tensor& a, const at::Tensor& b) {
      return a.logical_and(b).to(at::kDouble).mean().item<double>();
    };
    for (const std::int64_t distance : {1, 2, 3, 64, 1000, 4096}) {
      const std::int64_t rest = kCount - distance;
      const double together = both(is_zero.narrow(0, 0, rest), is_zero.narrow(0, distance, rest));
      CHECK(std::abs(together - p * p) < 5 * deviation);
    }
    for (const Key& key : {Key(6), Key(5).fold(0), Key(5).fold("")}) {
      CHECK(std::abs(both(is_zero, dropout(ones, p, key).eq(0)) - p * p) < 5 * deviation);
    }
  }
  CHECK(dropout(ones, 0, Key(1)).equal(ones));
  CHECK(dropout(ones, 1, Key(1)).equal(at::zeros({kCount}, at::kDouble)));
}

TEST_CASE("what is dropped depends on key and sizes alone") {
  const at::Tensor input = at::arange(300'000.0F).add_(1).view({300, 1000});
  const at::Tensor expected = dropout(input, 0.3, Key(1));
  CHECK(dropout(input.t().contiguous().t(), 0.3, Key(1)).equal(expected));
  const at::Tensor mask = expected.ne(0);
  for (const at::ScalarType type : {at::kDouble, at::kHalf, at::kBFloat16}) {
    CHECK(dropout(at::ones({300, 1000}, type), 0.3, Key(1)).ne(0).equal(mask));
  }
  const int threads_before = at::get_num_threads();
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    CHECK(dropout(input, 0.3, Key(1)).equal(expected));
  }
  at::set_num_threads(threads_before);
  CHECK(dropout(at::ones({}), 0.5, Key(1)).dim() == 0);
  CHECK(dropout(at::ones({0, 3}), 0.5, Key(1)).numel() == 0);
}

TEST_CASE("the gradient of dropout is dropped alike, and has one in turn") {
  const at::Tensor input = at::ones({100}).set_requires_grad(true);
  const at::Tensor output = dropout(input, 0.25, Key(2));
  output.sum().backward();
  CHECK(input.grad().equal(output.detach()));
}

TEST_CASE("what is no dropout is refused") {
  CHECK_THROWS_WITH(Dropout(1.5), "dropout: p must be in [0, 1], not 1.5");
  CHECK_THROWS_AS(Dropout(std::nan("")), ValueError);
  CHECK_THROWS_WITH(dropout(at::ones({2}), -0.1, Key(1)), "dropout: p must be in [0, 1], not -0.1");
  CHECK_THROWS_WITH(dropout(at::ones({2}, at::kLong), 0.1, Key(1)),
                    "dropout: the input must be floating, not Long");
}

TEST_CASE("in evaluation and without a probability a Dropout gives its input, anywhere") {
  Dropout drop(0.5);
  drop->eval();
  const at::Tensor input = at::ones({4});
  CHECK(drop(input).is_same(input));
  CHECK(Dropout(0.0)(input).is_same(input));
  std::stringstream text;
  text << drop;
  CHECK(text.str() == "lockstep::Dropout(p=0.5)");
}

TEST_CASE("a Dropout of no trainer, and in a map inside the replica, says what to do") {
  const at::Tensor input = at::ones({4});
  torch::nn::Sequential net(torch::nn::Linear(4, 4), Dropout(0.5));
  const std::string alone =
      "a lockstep::Dropout in training mode belongs to no trainer that lives, which says what step "
      "it is: make a ZeroTrainer or a DataParallel for a module that registers it, call eval() for "
      "an evaluation, or use lockstep::dropout(input, p, key)";
  CHECK(message_of<Error>([&] { net->forward(input); }) == alone);
  pmap(
      [&] {
        {
          const DataParallel parallel(*net, "i");
          (void)net->forward(input);
          const std::string inside = message_of<Error>([&] {
            (void)vmap([&](const at::Tensor& x) { return net->forward(x); },
                       {.axis_name = "lanes", .in_axes = {0}})(at::ones({2, 4}));
          });
          expect_contains(inside, "lockstep::Dropout '1' runs in a map inside the replica");
        }
        const std::string after = message_of<Error>([&] { net->forward(input); });
        if (after != alone) throw Error(after);
      },
      {.axis_size = 1})();
}

TEST_CASE("masks are those of their keys: seed, replica, step, microbatch, path and call") {
  pmap(
      [&] {
        const std::int64_t replica = axis_index("i");
        Dropout drop(0.5);
        torch::nn::Sequential net(seeded(1, [] { return torch::nn::Linear(50, 50); }), drop, drop);
        const DropoutByHand by_hand(7, replica);
        DataParallel parallel(*net, "i", {.seed = 7, .randomness = Randomness::strict});
        const at::Tensor input = at::ones({2, 50});
        for (std::uint64_t step = 0; step < 3; ++step) {
          for (std::uint64_t microbatch = 0; microbatch < 2; ++microbatch) {
            at::Tensor expected = net[0]->as<torch::nn::Linear>()->forward(input);
            for (std::uint64_t call = 0; call < 2; ++call) {
              expected = by_hand(expected, 0.5, step, microbatch, "1", call);
            }
            const at::Tensor output = net->forward(input);
            if (!output.equal(expected)) throw Error("another mask");
            if (microbatch == 0) {
              parallel.accumulate(output.sum());
            } else {
              parallel.backward(output.sum());
            }
          }
        }
      },
      {.axis_size = 3})();
}

TEST_CASE("training with Dropouts gives the same bits at all stages and in all placements") {
  const Quiet quiet;
  check_training_everywhere(dropping_model);
  CHECK(first_difference(trained_state_in_pmap(dropping_model, 2, {.seed = 1}),
                         trained_state_in_pmap(dropping_model, 2, {})) != "");
}
