#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "framework/keys/key.h"
#include "framework/objectives/loss.h"

namespace lockstep {

/// What the options may be. Sums of weights are then neither 0 nor infinite in float32.
inline const keys::Rule<double> kLabelSmoothingRule = keys::kPartBelow1;
inline const keys::Rule<double> kClassWeightRule{
    "0 or from 1e-30 to 1e+30",
    [](double weight) { return weight == 0 || (weight >= 1e-30 && weight <= 1e30); }};

/// Names, defaults and meaning are those of torch.nn.CrossEntropyLoss.
struct CrossEntropyOptions {
  /// How much of a target's probability goes to all classes in equal parts.
  double label_smoothing = 0;
  /// What a target of each class weighs; empty: all 1.
  std::vector<double> class_weights = {};
  /// A target that does not count. Without one (std::nullopt), and without class weights, the loss
  /// is weighted by samples (see Loss), which spares a message a step.
  std::optional<std::int64_t> ignore_index = -100;

  bool operator==(const CrossEntropyOptions&) const = default;
};

/// The cross entropy of scores before softmax. Outputs are (samples, classes) or (samples,
/// positions…, classes), the classes last, in float32, float64 or a half type, which is computed in
/// float32. Targets are int64, (samples) or (samples, positions…). With x the outputs, y the
/// targets that are not ignored, w the class weights, C classes and e = label_smoothing:
///
///   mean   = sum_i ((1 - e) w[y_i] nll_i[y_i] + e/C sum_c w[c] nll_i[c]) / weight
///   weight = sum_i w[y_i],   nll_i[c] = -log softmax(x_i)[c]
///
/// as torch.nn.functional.cross_entropy, which has classes in the second dimension. Contiguous
/// outputs are not copied. Throws ValueError for options outside their range; mean() for
/// other shapes and dtypes, for a target that is neither a class nor ignored (which one, and its
/// value), and where class_weights has not one number a class.
[[nodiscard]] std::shared_ptr<const Loss> make_cross_entropy(CrossEntropyOptions options = {});

}  // namespace lockstep
