#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"

namespace lockstep::testing {
namespace {

// Element j of replica r is j + r/8: every sum below is exact, so that any order gives the closed
// form.
void exchange_large(std::int64_t bytes_per_piece) {
  const std::int64_t replicas = axis_size("i");
  const std::int64_t me = axis_index("i");
  const std::int64_t piece = bytes_per_piece / 8;
  const auto size = static_cast<double>(replicas);
  const double others = size * (size - 1) / 2 / 8;
  const Tensor x = at::arange(replicas * piece, at::kDouble) + static_cast<double>(me) / 8;
  const Tensor sum = at::arange(replicas * piece, at::kDouble) * size + others;
  for (int again = 0; again < 2; ++again) {
    expect(psum(x, "i").equal(sum), "psum is wrong");
    const Tensor own = psum_scatter(x, "i", {.tiled = true});
    expect(own.equal(sum.narrow(0, me * piece, piece)), "psum_scatter is wrong");
    expect(all_gather(own, "i", {.tiled = true}).equal(sum), "all_gather is wrong");
  }
}

// The same without closed form: the bits of many roundings.
void round_large(std::int64_t bytes_per_piece) {
  const std::int64_t replicas = axis_size("i");
  Draw draw(Key(5).fold(static_cast<std::uint64_t>(axis_index("i"))));
  const Tensor x = random_tensor(draw, {replicas * bytes_per_piece / 4}, at::kFloat);
  const Tensor gathered = all_gather(psum_scatter(x, "i", {.tiled = true}), "i", {.tiled = true});
  expect(same_bits(gathered, psum(x, "i")), "all_gather(psum_scatter(x)) is not psum(x)");
}

}  // namespace

std::vector<Case> large_cases() {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  std::vector<Case> cases;
  add_cases(cases, "4 MiB a piece", {2, 3, 4, 5}, [] {
    exchange_large(4 * kMiB);
    round_large(kMiB);
  });
  cases.push_back({"16 MiB a piece, 2 replicas", 2, [] { exchange_large(16 * kMiB); }});
  cases.push_back({"4 MiB a piece, 8 replicas", 8, [] { round_large(4 * kMiB); }});
  return cases;
}

}  // namespace lockstep::testing
