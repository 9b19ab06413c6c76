#include "models/loss.h"

#include <array>
#include <cmath>
#include <cstdint>

#include <ATen/Functions.h>

#include "framework/base/errors.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

TEST_CASE("regression is the squared error, mean over all elements", "[models]") {
  const at::Tensor outputs = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble).view({2, 2});
  const at::Tensor targets = at::tensor({1.5, 2.0, 1.0, 4.0}, at::kDouble).view({2, 2});
  const at::Tensor value = loss(Task::regression, outputs, targets);
  CHECK(value.dim() == 0);
  CHECK(value.item<double>() == 4.25 / 4);
}

TEST_CASE("classification is the cross entropy, mean over the samples", "[models]") {
  constexpr std::array<std::array<double, 3>, 2> kScores{{{1.0, 2.0, -1.0}, {0.5, 0.0, 3.0}}};
  constexpr std::array<std::size_t, 2> kLabels{1, 0};
  double expected = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    double total = 0;
    for (const double score : kScores[i]) total += std::exp(score);
    expected -= std::log(std::exp(kScores[i][kLabels[i]]) / total) / 2;
  }
  const at::Tensor outputs = at::tensor({1.0, 2.0, -1.0, 0.5, 0.0, 3.0}, at::kDouble).view({2, 3});
  const at::Tensor targets = at::tensor({1, 0}, at::kLong);
  const at::Tensor value = loss(Task::classification, outputs, targets);
  CHECK(value.dim() == 0);
  CHECK(value.item<double>() == Approx(expected).epsilon(1e-12));
}

TEST_CASE("loss refuses what it would have to guess", "[models]") {
  // (4, 1) against (4) would broadcast to (4, 4).
  CHECK_THROWS_WITH(loss(Task::regression, at::zeros({4, 1}), at::zeros({4})),
                    ContainsSubstring("one shape and dtype; outputs are Float (4, 1), targets "
                                      "Float (4)"));
  CHECK_THROWS_WITH(loss(Task::regression, at::zeros({2}), at::zeros({2}, at::kLong)),
                    ContainsSubstring("targets Long (2)"));
  CHECK_THROWS_WITH(loss(Task::classification, at::zeros({4, 3}), at::zeros({3}, at::kLong)),
                    ContainsSubstring("outputs are Float (4, 3), targets Long (3)"));
  CHECK_THROWS_WITH(loss(Task::classification, at::zeros({4, 3}), at::zeros({4})),
                    ContainsSubstring("int64 targets"));
  CHECK_THROWS_WITH(loss(Task::classification, at::zeros({0, 3}), at::zeros({0}, at::kLong)),
                    ContainsSubstring("no samples"));
  CHECK_THROWS_AS(loss(Task::regression, at::zeros({0, 1}), at::zeros({0, 1})), ValueError);
}

}  // namespace
}  // namespace lockstep
