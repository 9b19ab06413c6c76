#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/data/dataset.h"
#include "framework/data/fitted.h"
#include "trainers/run/evaluate.h"

namespace lockstep {

/// What `train eval` tells of a set beside its figures: of classes what was predicted for each, of
/// values how far off the outputs are. Nothing of tokens, nor where a model of a program's own has
/// fewer outputs than classes, or not one for each value. Outputs beyond the classes are told as
/// classes without a name.
class SetDetails {
 public:
  /// `ignored` is the target that does not count.
  SetDetails(const SampleType& sample, const Fitted& fitted, std::optional<std::int64_t> ignored);

  /// What is to be counted for it.
  [[nodiscard]] const std::vector<NamedTally>& tallies() const { return tallies_; }

  /// Of what the tallies have counted, in their order. Of classes
  ///
  ///   classes    of each its number, name, targets (count), how often it was predicted, precision,
  ///              recall, f1
  ///   averages   macro and weighted means of precision, recall and f1
  ///   confusion  a row a class: how many of its targets were predicted as each; of up to 1000
  ///              classes
  ///   without_prediction  for how many targets of each class an output is NaN, if for some
  ///   auc        where there are two classes, and a sample has one of them
  ///
  /// and of up to 100 values
  ///
  ///   residuals  of each its number, name, and the quantiles of target - prediction by percents;
  ///              in the file's unit, whether or not targets were normalized
  [[nodiscard]] nlohmann::ordered_json json(const std::vector<at::Tensor>& totals,
                                            const std::vector<std::string>& class_names) const;

 private:
  [[nodiscard]] nlohmann::ordered_json residuals(const at::Tensor& rows) const;

  std::vector<NamedTally> tallies_;
  Fitted fitted_;
};

/// The same for people, in lines of at most 100 columns where names are short. A confusion table
/// that is wider becomes a list of the largest confusions. `set` is "test".
[[nodiscard]] std::string details_text(const std::string& set,
                                       const nlohmann::ordered_json& details);

}  // namespace lockstep
