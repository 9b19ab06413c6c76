// Ways to fall out of step in a backward whose forwards agree: collectives that a gradient's hook
// calls.

#include <functional>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "tests/replicas/out_of_step.h"

namespace lockstep::testing {
namespace {

using at::Tensor;
using Hook = std::function<void(bool is_odd)>;

// All run the same forward; its backward calls `hook`, and after it all join.
std::function<void(std::int64_t)> in_backward(const Hook& hook) {
  return [hook](std::int64_t odd) {
    (void)psum(at::ones({}), "data");
    const bool is_odd = axis_index("data") == odd;
    const Tensor x = at::ones({3}).set_requires_grad(true);
    const Tensor y = x * 2;
    (void)y.register_hook([=](const Tensor& gradient) {
      hook(is_odd);
      return gradient;
    });
    y.sum().backward();
    (void)psum(at::ones({2}), "data");
  };
}

void gradient_with_other_shape(bool is_odd) {
  (void)psum(at::ones({is_odd ? 2 : 3}), "data");
}

void gradient_with_other_dtype(bool is_odd) {
  (void)psum(at::ones({3}, is_odd ? at::kDouble : at::kFloat), "data");
}

void gradient_with_other_operation(bool is_odd) {
  if (is_odd) {
    (void)pmax(at::ones({3}), "data");
  } else {
    (void)psum(at::ones({3}), "data");
  }
}

void gradient_with_other_group(bool is_odd) {
  using Groups = std::vector<std::vector<std::int64_t>>;
  const Groups groups = is_odd ? Groups{{0, 2}, {1, 3}} : Groups{{0, 1}, {2, 3}};
  (void)psum(at::ones({3}), "data", {.axis_index_groups = groups});
}

void gradient_that_skips(bool is_odd) {
  if (!is_odd) (void)psum(at::ones({3}), "data");
}

void gradient_that_throws(bool is_odd) {
  if (is_odd) throw DataError("the backward's data end early");
  (void)psum(at::ones({3}), "data");
}

}  // namespace

std::vector<OutOfStep> ways_in_backward() {
  return {
      {.name = "has another shape in its backward",
       .body = in_backward(gradient_with_other_shape),
       .message = {"replica # called psum over 'data' at @ with (2) float32",
                   " called psum over 'data' at @ with (3) float32"}},
      {.name = "has another dtype in its backward",
       .body = in_backward(gradient_with_other_dtype),
       .message = {"replica # called psum over 'data' at @ with (3) float64",
                   " called psum over 'data' at @ with (3) float32"}},
      {.name = "calls another operation in its backward",
       .body = in_backward(gradient_with_other_operation),
       .message = {"replica # called pmax over 'data' at @ with (3) float32",
                   " called psum over 'data' at @ with (3) float32"},
       .lines = 2},
      {.name = "has other groups in its backward",
       .body = in_backward(gradient_with_other_group),
       .message = {"replica # called psum over 'data' at @ with (3) float32, groups [[0, 2], [1, "
                   "3]]"}},
      {.name = "skips a collective of its backward",
       .body = in_backward(gradient_that_skips),
       .message = {"replica # called psum over 'data' at @ with (2) float32",
                   " called psum over 'data' at @ with (3) float32"},
       .lines = 2},
      {.name = "throws in its backward",
       .body = in_backward(gradient_that_throws),
       .message = {"the backward's data end early"},
       .lines = 0,
       .others_end = "Aborted",
       .odd_ends = "DataError"},
  };
}

}  // namespace lockstep::testing
