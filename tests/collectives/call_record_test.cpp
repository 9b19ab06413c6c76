#include <cstdint>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using at::Tensor;

// The calls of one place share a record as long as they say the same.
TEST_CASE("a call that differs from earlier ones of its place is told with what it says now") {
  struct Case {
    std::vector<std::int64_t> sizes;
    at::ScalarType type;
    bool differentiated;
    std::string said;
  };
  const std::vector<Case> cases{{{3}, at::kFloat, false, "with (3) float32"},
                                {{1, 2}, at::kFloat, false, "with (1, 2) float32"},
                                {{2}, at::kInt, false, "with (2) int32"},
                                {{2}, at::kFloat, true, "with (2) float32, differentiated"}};
  for (const Case& odd : cases) {
    const auto body = [&](const Tensor& x) {
      for (int call = 0; call < 5; ++call) {
        const bool is_odd = call == 4 && axis_index("i") == 1;
        const Tensor operand = is_odd ? at::ones(odd.sizes, odd.type) : at::ones({2});
        if (is_odd && odd.differentiated) operand.requires_grad_(true);
        (void)psum(operand, "i");
      }
      return x;
    };
    const std::string message = testing::message_of<CollectiveMismatch>(
        [&] { (void)pmap(body, {.axis_name = "i"})(at::ones({3})); });
    INFO(message);
    CHECK_THAT(message, ContainsSubstring("replica 1 called psum over 'i'") &&
                            ContainsSubstring(odd.said) &&
                            ContainsSubstring("replicas 0 and 2 called psum over 'i'") &&
                            ContainsSubstring("with (2) float32"));
  }
}

TEST_CASE("a call makes its text for people once in a place") {
  const std::string axis(200, 'x');  // part of the text
  std::uint64_t of_first = 0;
  std::uint64_t of_others = 0;
  const auto body = [&](const Tensor& x) {
    constexpr int kCalls = 20;
    for (int call = 0; call < kCalls; ++call) {
      const std::uint64_t before = testing::allocated_bytes();
      (void)psum(x, axis);
      (call == 0 ? of_first : of_others) += testing::allocated_bytes() - before;
    }
    of_others /= kCalls - 1;
    return x;
  };
  (void)pmap(body, {.axis_name = axis})(at::ones({1, 2}));
  // A call copies the name of its axis; the first one makes texts of it, too.
  CHECK(of_first > of_others + 2 * axis.size());
}
