#include "framework/objectives/batch.h"

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/tree/error_place.h"

namespace lockstep::objectives {
namespace {

at::Tensor widened(const at::Tensor& tensor) {
  const bool is_half = tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
  return is_half ? tensor.to(at::kFloat) : tensor;
}

bool is_float_or_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

}  // namespace

void refuse(std::string_view user, std::string_view rule, const at::Tensor& outputs,
            const at::Tensor& targets) {
  const auto form = [](const at::Tensor& tensor) {
    return form_of(tensor) + (tensor.is_cpu() ? "" : " on another device");
  };
  throw ValueError(
      str(user, ": ", rule, "; outputs are ", form(outputs), ", targets ", form(targets)));
}

ClassBatch class_batch(std::string_view user, const at::Tensor& outputs,
                       const at::Tensor& targets) {
  const at::Tensor scores = widened(outputs);
  const bool has_scores = scores.dim() >= 2 && scores.size(-1) > 0 && is_float_or_double(scores);
  const bool is_of_classes = targets.scalar_type() == at::kLong;
  if (!has_scores || !is_of_classes ||
      targets.sizes() != scores.sizes().slice(0, static_cast<std::size_t>(scores.dim() - 1)) ||
      !scores.is_cpu() || !targets.is_cpu()) {
    refuse(user,
           "outputs must be floating-point numbers of shape (samples, …, classes), targets int64 "
           "of shape (samples, …), both on the CPU",
           outputs, targets);
  }
  if (scores.dim() == 2) return {scores, targets.contiguous()};  // spares a node of the graph
  return {scores.reshape({targets.numel(), scores.size(-1)}), targets.reshape({-1}).contiguous()};
}

void refuse_target(std::string_view user, std::int64_t row, std::int64_t target,
                   std::int64_t classes, std::optional<std::int64_t> ignore_index) {
  throw ValueError(str(user, ": target ", row, " is ", target, "; it must be a class, 0 to ",
                       classes - 1, ignore_index ? str(", or ", *ignore_index) : ""));
}

ValueBatch value_batch(std::string_view user, const at::Tensor& outputs,
                       const at::Tensor& targets) {
  ValueBatch batch{widened(outputs), widened(targets)};
  if (outputs.sizes() != targets.sizes() || outputs.dim() == 0 ||
      !is_float_or_double(batch.outputs) ||
      batch.outputs.scalar_type() != batch.targets.scalar_type()) {
    refuse(user,
           "outputs and targets must have one shape (samples, …) and one floating-point dtype",
           outputs, targets);
  }
  return batch;
}

}  // namespace lockstep::objectives
