#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/data/dataset.h"

namespace lockstep {

/// How a column was normalized: (x - mean) / deviation, of its values in the training set. The
/// deviation is that of a whole population. A constant column has 0, and then every x becomes 0.
struct ColumnScale {
  double mean = 0;
  double deviation = 1;

  bool operator==(const ColumnScale&) const = default;
};

/// How a column of a table becomes inputs: as this says, or, without categories and parts, as one
/// number.
struct ColumnForm {
  std::vector<std::string> categories{};  ///< an input each: 1 where a cell has this text, else 0
  bool has_missing = false;               ///< one more, for cells without a value
  bool has_other = false;                 ///< and a last one, for texts that are none of these
  std::vector<std::string> date_parts{};  ///< numbers made of a date, an input each

  [[nodiscard]] std::int64_t numbers() const;  ///< how many of its inputs are numbers
  [[nodiscard]] std::int64_t inputs() const;   ///< how many it becomes

  bool operator==(const ColumnForm&) const = default;
};

/// What a source takes from its training set beside the samples. A model that is trained on them
/// depends on it: whatever else the model is to see must be read by the same. A source fills in
/// what it has, load_data() the classes and what the samples are.
struct Fitted {
  std::vector<std::string> inputs{};         ///< the inputs' columns, in the inputs' order
  std::vector<ColumnScale> input_scales{};   ///< of each number among them; none: as they are
  std::vector<std::string> targets{};        ///< the columns to predict
  std::vector<ColumnScale> target_scales{};  ///< of each; none: as they are, or classes
  std::vector<std::string> classes{};        ///< the classes' names, by number, if they have some
  std::int64_t class_count = 0;              ///< of classes or tokens; 0: targets are values
  std::optional<SampleType> sample{};        ///< the training set's; none: it is not known
  std::vector<ColumnForm> forms{};           ///< of each input column; none: all are numbers
  std::vector<double> input_means{};  ///< of each number, for missing ones; none: input_scales has
                                      ///< them, or there is nothing to be filled

  /// The form of input column `i`.
  [[nodiscard]] ColumnForm form(std::size_t i) const {
    return forms.empty() ? ColumnForm() : forms.at(i);
  }

  bool operator==(const Fitted&) const = default;
};

/// Values (samples, values of each) as they were before they were normalized by these scales, one
/// of each value: float64. ValueError for another shape. Not differentiable.
[[nodiscard]] at::Tensor unscaled(const at::Tensor& values, const std::vector<ColumnScale>& scales);

/// Throws ValueError for lists that differ in length, and for a scale or mean that is not finite.
void check_fitted(const Fitted& fitted);

}  // namespace lockstep
