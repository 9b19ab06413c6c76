#include "framework/objectives/mean_squared_error.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "framework/base/errors.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/objectives/numbers.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using lockstep::testing::message_of;
using lockstep::testing::random_values;

TEST_CASE("mean squared error: the mean over all elements and its gradient", "[objectives]") {
  const auto loss = make_mean_squared_error();
  const at::Tensor outputs = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble).view({2, 2});
  const at::Tensor targets = at::tensor({1.5, 2.0, 1.0, 4.0}, at::kDouble).view({2, 2});
  const auto f = [&](const at::Tensor& x) { return loss->mean(x, targets); };
  const auto [value, gradient] = value_and_grad(f)(outputs);
  CHECK(value.dim() == 0);
  CHECK(value.item<double>() == 4.25 / 4);
  CHECK(gradient.equal((outputs - targets) / 2));
  CHECK(loss->mean(outputs.to(at::kFloat), targets.to(at::kFloat)).scalar_type() == at::kFloat);

  CHECK(loss->weight(targets) == 2);
  CHECK(loss->weight(targets.flatten()) == 4);
  CHECK(loss->is_weighted_by_samples());
  CHECK_FALSE(loss->ignore_index());
}

TEST_CASE("mean squared error: half types are computed in float32", "[objectives]") {
  const auto half = GENERATE(at::kBFloat16, at::kHalf);
  const at::Tensor outputs = random_values(Key(41), {50, 3}).to(half);
  const at::Tensor targets = random_values(Key(42), {50, 3}).to(at::kFloat);
  const auto loss = make_mean_squared_error();
  CHECK(loss->mean(outputs, targets).equal(loss->mean(outputs.to(at::kFloat), targets)));
  CHECK(loss->mean(outputs, targets.to(half)).scalar_type() == at::kFloat);
}

TEST_CASE("mean squared error refuses what it would have to guess", "[objectives]") {
  const auto refusal = [](const at::Tensor& outputs, const at::Tensor& targets) {
    return message_of<ValueError>([&] { (void)make_mean_squared_error()->mean(outputs, targets); });
  };
  // (4, 1) against (4) would broadcast to (4, 4).
  CHECK(refusal(at::zeros({4, 1}), at::zeros({4})) ==
        "mean_squared_error: outputs and targets must have one shape (samples, …) and one "
        "floating-point dtype; outputs are Float (4, 1), targets Float (4)");
  CHECK_THAT(refusal(at::zeros({2}), at::zeros({2}, at::kLong)),
             ContainsSubstring("targets Long (2)"));
  CHECK_THAT(refusal(at::zeros({2}, at::kLong), at::zeros({2}, at::kLong)),
             ContainsSubstring("outputs are Long (2)"));
  CHECK_THAT(refusal(at::zeros({2}), at::zeros({2}, at::kDouble)),
             ContainsSubstring("targets Double (2)"));
  CHECK_THAT(refusal(at::zeros({}), at::zeros({})), ContainsSubstring("outputs are Float ()"));
  CHECK_THAT(refusal(at::zeros({0, 1}), at::zeros({0, 1})), ContainsSubstring("no samples"));
}
