#include "framework/data/fitted.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep {

std::int64_t ColumnForm::numbers() const {
  if (!categories.empty()) return 0;
  return date_parts.empty() ? 1 : std::ssize(date_parts);
}

std::int64_t ColumnForm::inputs() const {
  if (categories.empty()) return numbers();
  return std::ssize(categories) + (has_missing ? 1 : 0) + (has_other ? 1 : 0);
}

at::Tensor unscaled(const at::Tensor& values, const std::vector<ColumnScale>& scales) {
  require(values.dim() == 2 && values.size(1) == std::ssize(scales), "values of the sizes (",
          join(values.sizes()), ") are not the ", scales.size(),
          " of each sample that were normalized");
  const at::Tensor means = at::tensor(mapped(scales, &ColumnScale::mean));
  const at::Tensor deviations = at::tensor(mapped(scales, &ColumnScale::deviation));
  return values.detach().to(at::kDouble) * deviations + means;
}

void check_fitted(const Fitted& fitted) {
  const auto check = [](const char* what, const auto& list, const char* of, auto size) {
    require(list.empty() || std::ssize(list) == static_cast<std::int64_t>(size),
            "fitted: ", list.size(), " ", what, " for ", size, " ", of);
  };
  check("forms", fitted.forms, "inputs", fitted.inputs.size());
  const auto numbers =
      fitted.forms.empty() ? std::ssize(fitted.inputs) : sum_of(fitted.forms, &ColumnForm::numbers);
  check("scales", fitted.input_scales, "inputs", numbers);
  check("means", fitted.input_means, "inputs", numbers);
  check("scales", fitted.target_scales, "targets", fitted.targets.size());
  check("names", fitted.classes, "classes", fitted.class_count);
  for (const auto* const scales : {&fitted.input_scales, &fitted.target_scales}) {
    for (const auto& [mean, deviation] : *scales) {
      require(std::isfinite(mean) && std::isfinite(deviation), "fitted: a scale is ", mean, " and ",
              deviation, ", but must be finite");
    }
  }
  for (const double mean : fitted.input_means) {
    require(std::isfinite(mean), "fitted: a mean is ", mean, ", but must be finite");
  }
}

}  // namespace lockstep
