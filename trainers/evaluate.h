#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "framework/axes/axis_names.h"
#include "framework/data/data.h"
#include "models/model.h"

namespace lockstep {

/// Evaluates the model on all of `data`: "loss", the mean over its samples, and for classification
/// "accuracy", the part of the samples whose largest output is their class. The replicas of the
/// axis share the samples. The result is the same on each.
[[nodiscard]] std::map<std::string, double> evaluate(Model& model, const Dataset& data,
                                                     const AxisNames& axis_name);

/// "step 30: test accuracy 0.89, test loss 0.33": the figures after so many steps.
[[nodiscard]] std::string evaluation_text(std::int64_t steps,
                                          const std::map<std::string, double>& figures);

}  // namespace lockstep
