#include "framework/data/finite.h"

#include <cmath>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/data/sample_text.h"

namespace lockstep {
namespace {

// What is wrong with a sample's values, (1, …); "" if all are finite.
std::string non_finite_value(const at::Tensor& values) {
  if (!values.is_floating_point()) return "";
  const at::Tensor flat = values.to(at::kDouble).contiguous();
  const auto* const numbers = flat.data_ptr<double>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    if (std::isfinite(numbers[i])) continue;
    const auto index = row_major_index(i, flat.sizes().slice(1));
    return str("is ", numbers[i], index.empty() ? "" : str(", at [", join(index), "]"));
  }
  return "";
}

}  // namespace

bool is_finite(const at::Tensor& values) {
  return !values.is_floating_point() || std::isfinite(values.sum(at::kDouble).item<double>());
}

std::string non_finite_of(const Dataset& data, std::int64_t index, std::int64_t epoch) {
  const Batch sample = data.batch({&index, 1}, epoch);
  const std::string of_input = non_finite_value(sample.inputs);
  const std::string of_target = data.has_targets() ? non_finite_value(sample.targets) : "";
  if (!of_input.empty()) return "an input that " + of_input;
  return of_target.empty() ? "" : "a target that " + of_target;
}

std::string first_non_finite(const Dataset& data, std::span<const std::int64_t> indices,
                             std::int64_t epoch) {
  for (const std::int64_t index : indices) {
    const std::string found = non_finite_of(data, index, epoch);
    if (found.empty()) continue;
    return str(data::sample_text(data, index), " has ", found);
  }
  return "";
}

}  // namespace lockstep
