#include "framework/optim/update.h"

#include <algorithm>
#include <array>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/wording.h"

namespace lockstep {
namespace {

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

void check_tensor(const char* what, const at::Tensor& tensor, const at::Tensor& parameter,
                  bool dtype_fits, const char* dtypes) {
  const auto fail = [&](const auto&... why) {
    throw ValueError(lockstep::str("optimizer: a slice's ", what, " ", why...));
  };
  if (!tensor.defined()) fail("is missing");
  if (!tensor.device().is_cpu() || tensor.dim() != 1 || !tensor.is_contiguous()) {
    fail("must have one dimension and be contiguous on the CPU, it is of shape ", tensor.sizes(),
         " on ", tensor.device());
  }
  if (tensor.numel() != parameter.numel()) {
    fail("has ", counted(tensor.numel(), "element"), ", its parameter ", parameter.numel());
  }
  if (!dtype_fits) {
    fail("is ", tensor.scalar_type(), ", must be ", dtypes, ", with a parameter in ",
         parameter.scalar_type());
  }
}

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

const HalfKernels& half_kernels(const OptimizerKernels& kernels, const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? kernels.bfloat16 : kernels.float16;
}

// With a gradient or a copy in half floats: a part at a time, small enough that what one loop has
// written is still in the nearest cache when the next one reads it.
void run_in_chunks(const OptimizerSlice& slice, ElementKernels::Update update,
                   const UpdateNumbers& numbers, UpdateBuffers buffers) {
  constexpr std::size_t kWidened = 1024;
  const OptimizerKernels& kernels = optimizer_kernels().back();
  const bool half_gradient = is_half(slice.gradient);
  const std::size_t gradient_bytes = half_gradient ? 2 : sizeof(float);
  const std::byte* gradient = buffers.gradient;
  std::byte* rounded = slice.rounded.defined() ? bytes_of(slice.rounded) : nullptr;
  std::array<float, kWidened> widened;
  for (std::size_t left = buffers.count; left > 0; left -= buffers.count) {
    buffers.count = std::min(left, kWidened);
    buffers.gradient = gradient;
    if (half_gradient) {
      half_kernels(kernels, slice.gradient).widen(gradient, buffers.count, widened.data());
      buffers.gradient = reinterpret_cast<const std::byte*>(widened.data());
    }
    update(buffers, numbers);
    if (rounded != nullptr) {
      half_kernels(kernels, slice.rounded)
          .narrow(reinterpret_cast<const float*>(buffers.parameter), buffers.count, rounded);
      rounded += 2 * buffers.count;
    }
    gradient += gradient_bytes * buffers.count;
    for (std::byte** at : {&buffers.parameter, &buffers.state[0], &buffers.state[1]}) {
      if (*at != nullptr) *at += sizeof(float) * buffers.count;
    }
  }
}

}  // namespace

void check_slice(const OptimizerSlice& slice, std::size_t state_tensors) {
  const at::Tensor& parameter = slice.parameter;
  const bool is_float = parameter.defined() && parameter.scalar_type() == at::kFloat;
  const bool is_double = parameter.defined() && parameter.scalar_type() == at::kDouble;
  check_tensor("parameter", parameter, parameter, is_float || is_double, "float32 or float64");
  const auto same = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.scalar_type() == parameter.scalar_type();
  };
  const auto half = [&](const at::Tensor& tensor) {
    return tensor.defined() && is_float && is_half(tensor);
  };
  check_tensor("gradient", slice.gradient, parameter, same(slice.gradient) || half(slice.gradient),
               "of the same dtype or, for float32, bfloat16 or float16");
  if (slice.state.size() != state_tensors) {
    throw ValueError(lockstep::str("optimizer: a slice has ",
                                   counted(std::ssize(slice.state), "tensor"),
                                   " of state, the optimizer ", state_tensors));
  }
  for (const at::Tensor& state : slice.state) {
    check_tensor("state", state, parameter, same(state), "of the same dtype");
  }
  if (slice.rounded.defined()) {
    check_tensor("rounded copy", slice.rounded, parameter, half(slice.rounded),
                 "bfloat16 or float16, of float32");
  }
}

void run_update(const OptimizerSlice& slice, UpdateRule rule, const UpdateNumbers& numbers) {
  const OptimizerKernels& kernels = optimizer_kernels().back();
  UpdateBuffers buffers{.parameter = bytes_of(slice.parameter),
                        .gradient = bytes_of(slice.gradient),
                        .state = {},
                        .count = static_cast<std::size_t>(slice.parameter.numel())};
  for (std::size_t i = 0; i < slice.state.size(); ++i) buffers.state[i] = bytes_of(slice.state[i]);
  if (slice.parameter.scalar_type() == at::kDouble) {
    (kernels.float64.*rule)(buffers, numbers);
  } else if (is_half(slice.gradient) || slice.rounded.defined()) {
    run_in_chunks(slice, kernels.float32.*rule, numbers, buffers);
  } else {
    (kernels.float32.*rule)(buffers, numbers);
  }
}

}  // namespace lockstep
