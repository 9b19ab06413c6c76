#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/refused.h"
#include "tests/support/message_of.h"

namespace lockstep::testing {
namespace {

// Tensors in symmetric memory, and others, give the bits of collectives that return a result.
void same_as_those_that_return(std::int64_t piece, at::ScalarType dtype) {
  const std::int64_t n = axis_size("i");
  Draw draw(Key(7).fold(static_cast<std::uint64_t>(axis_index("i"))));
  const Tensor values = random_tensor(draw, {n * piece}, dtype);
  const Tensor sum = psum(values, "i");
  const Tensor own = psum_scatter(values, "i", {.tiled = true});
  const Tensor symmetric = symmetric_zeros({n * piece + 3}, dtype, "i");
  expect(symmetric.equal(at::zeros_like(symmetric)), "zeros at first");
  for (const Tensor& x : {symmetric.narrow(0, 3, n * piece), at::empty_like(values)}) {
    x.copy_(values);
    psum_(x, "i");
    expect(same_bits(x, sum), "psum_");
    if (at::isFloatingType(dtype)) {
      x.copy_(values);
      pmean_(x, "i");
      expect(same_bits(x, pmean(values, "i")), "pmean_");
    }
    x.copy_(values);
    const Tensor mine = x.narrow(0, axis_index("i") * piece, piece);
    psum_scatter_into(mine, x, "i");
    expect(same_bits(mine, own), "psum_scatter_into the own slice");
    all_gather_into(x, mine, "i");
    expect(same_bits(x, sum), "all_gather_into from the own slice");
    const Tensor elsewhere = at::empty_like(own);
    psum_scatter_into(elsewhere, x.copy_(values), "i");
    expect(same_bits(elsewhere, own), "psum_scatter_into");
    all_gather_into(x, elsewhere, "i");
    expect(same_bits(x, sum), "all_gather_into");
  }
}

// Shapes do not matter to calls that take tensors as flat, and groups are those of psum.
void shapes_and_groups() {
  const Tensor x = symmetric_zeros({2, 3}, at::kFloat, "i");
  x.fill_(static_cast<float>(axis_index("i")) + 1);
  psum_(x.view({3, 2}), "i", {.axis_index_groups = {{0, 2}, {3, 1}}});
  const float sum = axis_index("i") % 2 == 0 ? 4 : 6;
  expect(x.equal(at::ones({2, 3}) * sum), "psum_ in groups");
  const Tensor whole = at::empty({2, 2, 3});
  all_gather_into(whole, x, "i", {{0, 2}, {3, 1}});
  expect(whole.equal(at::ones({2, 2, 3}) * sum), "all_gather_into in groups");
  psum_scatter_into(x, whole, "i", {{0, 2}, {3, 1}});
  expect(x.equal(at::ones({2, 3}) * 2 * sum), "psum_scatter_into in groups");
  expect(symmetric_zeros({0, 4}, at::kLong, "i").sizes() == at::IntArrayRef({0, 4}), "empty");
  const Tensor scalar = symmetric_zeros({}, at::kFloat, "i");
  expect(scalar.dim() == 0, "a scalar");
  psum_(scalar.fill_(2), "i");
  expect(scalar.item<float>() == 8, "psum_ of a scalar");
}

// Autograd is told that a tensor which it has saved was written to.
void versions_count() {
  const Tensor x = at::ones({3});
  const Tensor w = at::ones({3}).set_requires_grad(true);
  const Tensor product = (w * x).sum();
  psum_(x, "i");
  const std::string error = message_of<c10::Error>([&] { product.backward(); });
  expect(error.find("modified by an inplace") != std::string::npos,
         "the backward must not use what psum_ has overwritten");
}

void refusals() {
  const std::int64_t n = axis_size("i");
  const std::string here = " over 'i' (in_place_cases.cpp): ";
  const Tensor x = at::ones({4, 3});
  refused<ValueError>("psum_" + here + "x must be contiguous", [&] { psum_(x.t(), "i"); });
  refused<ValueError>(
      "psum_" + here +
          "x requires a gradient, and this has no derivative: use what returns its result, or "
          "c10::AutoGradMode(false)",
      [&] { psum_(at::ones({2}).set_requires_grad(true), "i"); });
  refused<ValueError>(
      "all_gather_into" + here +
          "input requires a gradient, and this has no derivative: use what returns its result, or "
          "c10::AutoGradMode(false)",
      [&] { all_gather_into(at::empty({2 * n}), at::ones({2}).set_requires_grad(true), "i"); });
  {
    const c10::AutoGradMode no_grad(false);
    psum_(at::ones({2}).set_requires_grad(true), "i");
  }
  refused<ValueError>("psum_" + here + "booleans have no sum; count them in int64",
                      [&] { psum_(x.to(at::kBool), "i"); });
  refused<ValueError>("pmean_" + here + "int32 has no mean; sum it and divide",
                      [&] { pmean_(x.to(at::kInt), "i"); });
  refused<ValueError>("psum_scatter_into" + here + "output is Double, input Float; they must agree",
                      [&] { psum_scatter_into(x.to(at::kDouble), x, "i"); });
  refused<ValueError>(str("all_gather_into", here, "input has 12 elements, output ", 12 * n + 1,
                          "; one is ", n, " times the other"),
                      [&] { all_gather_into(at::empty({12 * n + 1}), x, "i"); });
  refused<ValueError>("symmetric_zeros" + here + "size -1 is negative",
                      [&] { (void)symmetric_zeros({-1}, at::kFloat, "i"); });
  refused<ValueError>("symmetric_zeros" + here + "the sizes are too large",
                      [&] { (void)symmetric_zeros({std::int64_t{1} << 45}, at::kFloat, "i"); });
  psum_(x, "i");  // and the replicas are still in step
}

// One tensor may be the own slice of the other, and nothing else of it, in any memory and however
// long: short and long messages, and private, symmetric and common memory, go ways of their own.
void overlaps() {
  const std::int64_t n = axis_size("i");
  const std::int64_t own = axis_index("i");
  for (const std::int64_t piece : {4, 300'000}) {
    const std::int64_t size = n * piece;
    for (const Tensor& memory :
         {at::zeros({size + 2}), symmetric_zeros({size + 2}, at::kFloat, "i"),
          common_zeros({size + 2}, at::kFloat, "i").tensor}) {
      const Tensor whole = memory.narrow(0, 1, size);
      const auto overlap = [&](const char* what, const char* part, const char* all,
                               std::int64_t at) {
        return str(what, " over 'i' (in_place_cases.cpp): ", part, " and ", all, " overlap: ", part,
                   " begins ", at, " elements after ", all,
                   ", and may do so only as this replica's slice of it, ", own * piece,
                   " elements after it");
      };
      std::vector<std::int64_t> places{own * piece + 1, own * piece - 1};
      if (n > 1) places.push_back((own + 1) % n * piece);
      for (const std::int64_t at : places) {
        const Tensor part = memory.narrow(0, 1 + at, piece);
        refused<ValueError>(overlap("psum_scatter_into", "output", "input", at),
                            [&] { psum_scatter_into(part, whole, "i"); });
        refused<ValueError>(overlap("pmean_scatter_into", "output", "input", at),
                            [&] { pmean_scatter_into(part, whole, "i"); });
        refused<ValueError>(overlap("all_gather_into", "input", "output", at),
                            [&] { all_gather_into(whole, part, "i"); });
      }
    }
  }
  const Tensor bytes = at::zeros({4 * n * 4 + 4}, at::kByte);
  const Tensor whole = at::from_blob(bytes.data_ptr(), {4 * n}, at::kFloat);
  const Tensor part = at::from_blob(bytes.data_ptr<std::uint8_t>() + 2, {4}, at::kFloat);
  expect(refusal([&] {
           psum_scatter_into(part, whole, "i");
         }).find("output begins 2 bytes after") != std::string::npos,
         "an overlap in the midst of an element");
  psum_scatter_into(at::empty({0}), at::empty({0}), "i");
}

}  // namespace

std::vector<Case> in_place_cases() {
  std::vector<Case> cases;
  const std::vector<std::int64_t> sizes{1, 2, 3, 4, 5, 8};
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    add_cases(cases, str("in place, ", at::toString(dtype)), sizes, [dtype] {
      for (const std::int64_t piece : {1, 17, 9001}) same_as_those_that_return(piece, dtype);
    });
  }
  add_cases(cases, "in place, refusals", sizes, refusals);
  add_cases(cases, "in place, overlaps", sizes, overlaps);
  cases.push_back({"in place, shapes and groups", 4, shapes_and_groups});
  cases.push_back({"in place, versions", 2, versions_count});
  return cases;
}

}  // namespace lockstep::testing
