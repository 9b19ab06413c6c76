#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "framework/axes/axis_names.h"
#include "framework/data/dataset.h"
#include "framework/objectives/loss.h"

namespace lockstep {

/// What a run's report shows of the samples of an evaluation, where each has a class: what was
/// predicted for the targets of each class, and the samples with the largest losses. It takes no
/// more memory for more samples. One on each replica, for one evaluation; one thread.
class EvaluationRecord {
 public:
  /// Both must live as long. The loss says which target does not count.
  EvaluationRecord(const Dataset& data, const Loss& loss) : data_(data), loss_(loss) {}

  /// Counts a batch of this replica's: see TakeBatch. Nothing of samples without a class, and of
  /// outputs that are not a score for each class, as models of a program's own may have them.
  void add(std::span<const std::int64_t> indices, const at::Tensor& outputs,
           const at::Tensor& targets);

  /// Of all replicas' samples, on the first of them; null on the others, and where nothing is
  /// counted. All replicas together. Names are those of `train eval` and `train predict`:
  ///
  ///   class_names  where classes have names, and there are up to 100
  ///   confusion    a row for each class, of up to 100: how many of its targets were predicted as
  ///                each; a number more a row, of those with an output of NaN, if there are some
  ///   confused     of more classes: the 100 pairs that were confused most, each with target,
  ///                target_name, prediction, prediction_name, count
  ///   worst        the 20 samples with the largest cross entropy, the largest first, whatever the
  ///                loss is: index, sample (its name for people), target, target_name, prediction,
  ///                prediction_name (neither where an output is NaN), loss (null: not finite), and,
  ///                where they are pictures, picture: a small PNG as a data URI
  [[nodiscard]] nlohmann::ordered_json json(const AxisNames& axis_name) const;

 private:
  struct Sample {
    double loss;
    std::int64_t index, target, predicted;
  };
  // How many targets of the first class were predicted as the second.
  using Counts = std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>;

  static void keep_worst(std::vector<Sample>& samples);
  [[nodiscard]] Counts all_counts(const AxisNames& axis_name) const;
  [[nodiscard]] std::vector<Sample> all_worst(const AxisNames& axis_name) const;
  void add_counts(nlohmann::ordered_json& record, const Counts& counts) const;
  [[nodiscard]] nlohmann::ordered_json worst_json(const std::vector<Sample>& worst) const;

  const Dataset& data_;
  const Loss& loss_;
  std::int64_t classes_ = 0;  // that outputs have scores of; as a prediction: none
  Counts counts_;
  std::vector<Sample> worst_;
};

}  // namespace lockstep
