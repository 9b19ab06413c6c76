#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/damaged.h"
#include "framework/data/dataset.h"
#include "framework/data/fitted.h"
#include "models/model.h"

namespace lockstep {

enum class PredictionFormat { csv, jsonl };

struct PredictionOptions {
  std::int64_t batch_size = 64;
  PredictionFormat format = PredictionFormat::csv;
  /// Names of the data's columns() that are written, too; one text may have several, between
  /// commas.
  /// "*": all that have a name.
  std::vector<std::string> with = {};
  bool probabilities = false;            ///< those of all classes
  std::optional<std::int64_t> top = {};  ///< how many classes, the likeliest first
  /// How the values to predict were normalized, if they were: they are written as they were before.
  std::vector<ColumnScale> target_scales = {};
  /// Gets the samples that are damaged, in their order; these have no line. None: the first one's
  /// DataError is thrown.
  std::function<void(const DamagedSample& damaged)> on_damaged = {};
};

/// Throws ValueError for samples of tokens, whose prediction is the next token of a text, for
/// probabilities of values, and for more classes than there are. Messages name train's flags.
void check_predictable(const SampleType& sample, const PredictionOptions& options);

/// The places in `data.columns()` of those that `with` names, as PredictionOptions has it, each
/// once. ValueError, which names --with, for one that is not there.
[[nodiscard]] std::vector<std::size_t> columns_with(const Dataset& data,
                                                    const std::vector<std::string>& with);

/// What a model says of each sample of `data`, in its order, as text: `write` gets it part by part.
/// The model runs in evaluation mode, on batches of `batch_size` samples. A sample's line has
///
///   index       its number, from 0
///   file        its name, if sample 0 has one
///   NAME        the texts of the columns `with`, as the data have them; own_NAME where a line has
///               such a column anyway
///   prediction  of classes the one with the largest output (of equal ones the first; NaN is larger
///               than numbers), otherwise the outputs
///   score       of classes: that output, before softmax
///   probability with `probabilities`: of each class, the softmax of all outputs in double
///   top         with `top`: the classes with the largest outputs, each with `class`, `name` if it
///               has one, and `probability`; of equal ones the first
///   target      the class or the values that the data set has, if it has_targets()
///
/// and, where classes have names, prediction_name and target_name. Several values of a sample are a
/// list of JSON, which is flat, or columns prediction_0, prediction_1, …. Probabilities are an
/// object of JSON by the classes' names, or a list where they have none, or columns
/// probability_NAME; the likeliest are a list of objects, or columns top_1_class, top_1_name,
/// top_1_probability, top_2_class, …. Numbers are the shortest that read back the same. CSV begins
/// with a line of the columns' names; JSON has null for numbers that are not finite. A warning says
/// for how many samples the outputs are not, and names the first. ValueError as
/// check_predictable() and columns_with(), for outputs that are not of the data's
/// classes, or of several classes a sample where one's probabilities are asked for, and for those
/// that have not one value for each of `target_scales`.
void write_predictions(Model& model, const Dataset& data, const PredictionOptions& options,
                       const std::function<void(std::string_view)>& write);

}  // namespace lockstep
