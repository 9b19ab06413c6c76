#include "framework/training/gradient_averaging.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "framework/collectives/axis_index.h"
#include "framework/replicas/pmap.h"
#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("gradients and loss become their means over the replicas") {
  const auto averaged = pmap(
      [] {
        const auto index = static_cast<double>(axis_index("i"));
        std::vector<Tensor> parameters{at::ones({2, 3}), at::ones({}, at::kDouble), at::ones({4})};
        parameters[0].mutable_grad() = at::full({2, 3}, index);
        parameters[1].mutable_grad() = at::full({}, 10 * index, at::kDouble);
        if (index == 2) parameters[2].mutable_grad() = at::full({4}, 8.0);  // zeros elsewhere
        const Tensor loss = average_gradients(parameters, at::full({}, 1 + index), "i");
        return std::vector<Tensor>{parameters[0].grad(), parameters[1].grad(), parameters[2].grad(),
                                   loss};
      },
      {.axis_size = 4})();
  CHECK(averaged[0].equal(at::full({4, 2, 3}, 1.5)));
  CHECK(averaged[1].equal(at::full({4}, 15.0, at::kDouble)));
  CHECK(averaged[2].equal(at::full({4, 4}, 2.0)));
  CHECK(averaged[3].equal(at::full({4}, 2.5)));
}
