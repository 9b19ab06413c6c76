#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/objectives/metric.h"

namespace lockstep::objectives {

/// What is predicted by the scores of all classes: the class with the largest one, of equal ones
/// the lowest. Scores of which one is NaN predict none: that is `classes`.
template <typename T>
[[nodiscard]] std::int64_t predicted_class(const T* scores, std::int64_t classes) {
  std::int64_t best = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    if (std::isnan(scores[c])) return classes;
    if (scores[c] > scores[best]) best = c;
  }
  return best;
}

/// How many targets a class has, how often it was predicted, and both at once. A ratio of nothing
/// to nothing is 0, as by scikit-learn's zero_division.
struct ClassCount {
  double targets = 0;
  double predicted = 0;
  double right = 0;

  [[nodiscard]] double precision() const { return predicted > 0 ? right / predicted : 0; }
  [[nodiscard]] double recall() const { return targets > 0 ? right / targets : 0; }
  [[nodiscard]] double f1() const {
    return targets + predicted > 0 ? 2 * right / (targets + predicted) : 0;
  }
};

/// Sums: of all classes the targets, how often they were predicted, and both. `name` is for
/// messages.
[[nodiscard]] std::shared_ptr<const Tally> make_class_counts(
    std::string name, std::optional<std::int64_t> ignore_index);
[[nodiscard]] std::vector<ClassCount> class_counts(const at::Tensor& sums);

/// A figure of a class, and what the class weighs in a mean over all.
using ClassScore = double (ClassCount::*)() const;
using ClassWeight = double (*)(const ClassCount& count);
[[nodiscard]] double macro_weight(const ClassCount& count);     ///< alike, if it occurs at all
[[nodiscard]] double weighted_weight(const ClassCount& count);  ///< by its targets
[[nodiscard]] double recalled_weight(const ClassCount& count);  ///< alike, if it has targets
/// NaN where no class weighs anything.
[[nodiscard]] double class_mean(const std::vector<ClassCount>& counts, ClassScore score,
                                ClassWeight weight);

/// The class_mean(); with `is_of_class_1` for two classes the score of class 1.
[[nodiscard]] std::shared_ptr<const Metric> make_class_score(
    std::string name, std::optional<std::int64_t> ignore_index, ClassScore score,
    ClassWeight weight, bool is_of_class_1 = false);

/// Sums: how many targets of each class were predicted as each, (classes, classes + 1) row by row:
/// the last column counts those for which no class was.
[[nodiscard]] std::shared_ptr<const Tally> make_confusion(std::optional<std::int64_t> ignore_index);

}  // namespace lockstep::objectives
