#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/dataset.h"

namespace lockstep {

/// How a column was normalized: (x - mean) / deviation, of its values in the training set. The
/// deviation is that of a whole population. A constant column has 0, and then every x becomes 0.
struct ColumnScale {
  double mean = 0;
  double deviation = 1;

  bool operator==(const ColumnScale&) const = default;
};

/// What a source takes from its training set beside the samples. A model that is trained on them
/// depends on it: whatever else the model is to see must be read by the same. A source fills in
/// what it has, load_data() the classes and what the samples are.
struct Fitted {
  std::vector<std::string> inputs{};         ///< the inputs' columns, in the inputs' order
  std::vector<ColumnScale> input_scales{};   ///< of each; none: as they are
  std::vector<std::string> targets{};        ///< the columns to predict
  std::vector<ColumnScale> target_scales{};  ///< of each; none: as they are, or classes
  std::vector<std::string> classes{};        ///< the classes' names, by number, if they have some
  std::int64_t class_count = 0;              ///< of classes or tokens; 0: targets are values
  std::optional<SampleType> sample{};        ///< the training set's; none: it is not known

  bool operator==(const Fitted&) const = default;
};

/// Throws ValueError for lists that differ in length, and for a scale that is not finite.
void check_fitted(const Fitted& fitted);

}  // namespace lockstep
