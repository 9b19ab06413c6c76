#include "framework/optim/optimizer.h"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/text.h"

namespace lockstep {
namespace {

void check_tensor(const char* what, const at::Tensor& tensor, const at::Tensor& parameter,
                  bool dtype_fits, const char* dtypes) {
  const auto check = [&](bool holds, const auto&... why) {
    require(holds, "optimizer: a slice's ", what, " ", why...);
  };
  check(tensor.defined(), "is missing");
  check(tensor.device().is_cpu() && tensor.dim() == 1 && tensor.is_contiguous(),
        "must have one dimension and be contiguous on the CPU, it is of shape ", tensor.sizes(),
        " on ", tensor.device());
  check(tensor.numel() == parameter.numel(), "has ", counted(tensor.numel(), "element"),
        ", its parameter ", parameter.numel());
  check(dtype_fits, "is ", tensor.scalar_type(), ", must be ", dtypes, ", with a parameter in ",
        parameter.scalar_type());
}

// Throws ValueError unless `slice` is as OptimizerSlice says, with `state_tensors` of state.
void check_slice(const OptimizerSlice& slice, std::size_t state_tensors) {
  const at::Tensor& parameter = slice.parameter;
  const bool is_float = parameter.defined() && parameter.scalar_type() == at::kFloat;
  const bool is_double = parameter.defined() && parameter.scalar_type() == at::kDouble;
  check_tensor("parameter", parameter, parameter, is_float || is_double, "float32 or float64");
  const auto check_same = [&](const char* what, const at::Tensor& tensor) {
    const bool is_same = tensor.defined() && tensor.scalar_type() == parameter.scalar_type();
    check_tensor(what, tensor, parameter, is_same, "of the same dtype");
  };
  check_same("gradient", slice.gradient);
  require(slice.state.size() == state_tensors, "optimizer: a slice has ",
          counted(std::ssize(slice.state), "tensor"), " of state, the optimizer ", state_tensors);
  for (const at::Tensor& state : slice.state) check_same("state", state);
  if (slice.rounded.defined()) {
    const at::ScalarType type = slice.rounded.scalar_type();
    check_tensor("rounded copy", slice.rounded, parameter,
                 is_float && (type == at::kBFloat16 || type == at::kHalf),
                 "bfloat16 or float16, of float32");
  }
}

}  // namespace

void Optimizer::update(const OptimizerSlice& slice, const UpdateSettings& settings) const {
  check_slice(slice, state_tensors());
  require(settings.step >= 1, "optimizer: steps are counted from 1, this is step ", settings.step);
  require(!settings.clip_value || *settings.clip_value > 0,
          "optimizer: clip_value must be above 0, not ", *settings.clip_value);
  const c10::AutoGradMode no_grad(false);
  run(slice, settings);
}

void ElementwiseOptimizer::run(const OptimizerSlice& slice, const UpdateSettings& settings) const {
  // LibTorch computes whole registers in one way and the elements that are left in another. So no
  // elements are left: the last few are computed in a copy. It shares runs of 32,768 elements among
  // threads, so none are as long.
  constexpr std::int64_t kRegisters = 64;
  constexpr std::int64_t kAtOnce = 16'384;
  const std::int64_t count = slice.parameter.numel();
  for (std::int64_t begin = 0; begin < count;) {
    const std::int64_t left = count - begin;
    const bool is_padded = left < kRegisters;
    const std::int64_t size = is_padded ? left : std::min(kAtOnce, left - left % kRegisters);
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, size); };
    const auto computed = [&](const at::Tensor& tensor) {
      if (!is_padded) return part(tensor);
      const at::Tensor padded = at::zeros({kRegisters}, tensor.options());
      padded.narrow(0, 0, size).copy_(part(tensor));
      return padded;
    };
    const at::Tensor parameter = computed(slice.parameter);
    at::Tensor gradient = computed(slice.gradient).mul(settings.gradient_scale);
    if (settings.clip_value) gradient.clamp_(-*settings.clip_value, *settings.clip_value);
    const auto state = mapped(slice.state, computed);
    run_on(parameter, gradient, state, settings);
    if (is_padded) {
      part(slice.parameter).copy_(parameter.narrow(0, 0, size));
      for (std::size_t i = 0; i < state.size(); ++i) {
        part(slice.state[i]).copy_(state[i].narrow(0, 0, size));
      }
    }
    if (slice.rounded.defined()) part(slice.rounded).copy_(part(slice.parameter));
    begin += size;
  }
}

}  // namespace lockstep
