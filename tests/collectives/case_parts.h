#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/tree/tree.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"

// Parts that several files of cases use.

namespace lockstep::testing {

struct Token {
  Tensor id, state;
};
LOCKSTEP_TREE(Token, id, state)

inline const AxisIndexGroups kGroups{{0, 2}, {3, 1}};

/// This replica's index.
inline std::int64_t me() {
  return axis_index("i");
}

/// Row i of arange(16) as (4, 4), on replica i.
inline Tensor row() {
  return at::arange(16, at::kLong).view({4, 4}).select(0, me());
}

inline Tensor numbers(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

inline void expect_equal(const Tensor& result, const Tensor& expected, const std::string& what) {
  expect(same_bits(result, expected), str(what, " is ", result, ", not ", expected));
}

/// Only replica 0 makes the wrong calls. A call that is refused sends nothing, so that all
/// replicas are in step at the next one.
inline void still_in_step(const std::vector<void (*)()>& wrong_calls) {
  for (const auto& wrong : wrong_calls) {
    if (me() == 0) wrong();
    const auto n = static_cast<double>(axis_size("i"));
    expect(psum(at::ones({3}), "i").equal(at::full({3}, n)), "the sum after refused calls");
  }
}

}  // namespace lockstep::testing
