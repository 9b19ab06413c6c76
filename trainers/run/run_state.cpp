#include "trainers/run/run_state.h"

#include <cstddef>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "framework/base/text.h"
#include "framework/reduce/reduce.h"

namespace lockstep {
namespace {

// The mean of what each replica has told, in this type.
at::Tensor mean_of(const std::vector<double>& told, at::ScalarType type) {
  const at::Tensor values = at::tensor(told).to(type);
  const at::Tensor mean = at::empty({}, type);
  const auto bytes_of = [](const at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
  };
  const auto inputs = mapped(values.unbind(), [&](const at::Tensor& value) {
    return static_cast<const std::byte*>(bytes_of(value));
  });
  reduce::reduce(inputs, std::span(bytes_of(mean), mean.nbytes()),
                 type == at::kDouble ? ElementType::float64 : ElementType::float32, ReduceOp::mean);
  return mean;
}

}  // namespace

void RunState::take_loss(const std::vector<double>& told) {
  loss = mean_of(told, loss.scalar_type());
  losses.add(loss.item<double>());
}

}  // namespace lockstep
