#include "framework/data/fitted.h"

#include <cmath>

#include "framework/base/text.h"

namespace lockstep {

void check_fitted(const Fitted& fitted) {
  const auto check = [](const char* what, const auto& list, const char* of, auto size) {
    require(list.empty() || std::ssize(list) == static_cast<std::int64_t>(size),
            "fitted: ", list.size(), " ", what, " for ", size, " ", of);
  };
  check("scales", fitted.input_scales, "inputs", fitted.inputs.size());
  check("scales", fitted.target_scales, "targets", fitted.targets.size());
  check("names", fitted.classes, "classes", fitted.class_count);
  for (const auto* const scales : {&fitted.input_scales, &fitted.target_scales}) {
    for (const auto& [mean, deviation] : *scales) {
      require(std::isfinite(mean) && std::isfinite(deviation), "fitted: a scale is ", mean, " and ",
              deviation, ", but must be finite");
    }
  }
}

}  // namespace lockstep
