#include <cstdint>

#include <ATen/TensorOperators.h>

#include "framework/collectives/message.h"
#include "tests/catch.h"

using lockstep::collectives::result_memory;

namespace {

constexpr std::int64_t kFloats = (std::int64_t{8} << 20) / 4;

}  // namespace

TEST_CASE("memory of a large result that is freed is the next one's", "[collectives]") {
  at::Tensor first = result_memory({2, kFloats / 2}, at::kFloat);
  const void* const data = first.data_ptr();
  CHECK(first.is_contiguous());
  CHECK(first.sizes() == at::IntArrayRef({2, kFloats / 2}));
  const at::Tensor meanwhile = result_memory(first.sizes(), first.options());
  CHECK(meanwhile.data_ptr() != data);
  at::Tensor view = first.narrow(0, 1, 1);
  first = at::Tensor();
  CHECK(result_memory({kFloats}, at::kFloat).data_ptr() != data);  // a view still holds it
  view = at::Tensor();
  const at::Tensor smaller = result_memory({kFloats / 2 - 100, 2}, at::kInt);
  CHECK(smaller.data_ptr() == data);
  CHECK(smaller.scalar_type() == at::kInt);
  CHECK(result_memory({kFloats / 2}, at::kFloat).data_ptr() != data);
}

TEST_CASE("the memory of a result is a tensor like any other", "[collectives]") {
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{3}, kFloats}) {
    at::Tensor x = result_memory({count}, at::kFloat);
    x.fill_(2);
    CHECK((x + 1).sum().item<double>() == 3.0 * static_cast<double>(count));
    x.resize_({count + 1000});
    CHECK(x.numel() == count + 1000);
    if (count > 0) CHECK(x[count - 1].item<float>() == 2);
  }
}
