#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/data/data.h"

namespace lockstep {

/// What a source of CSV files takes of them.
struct CsvSetOptions {
  enum class Task { regression, classification };

  std::string file{};  ///< the training set, as formats::CsvFile reads it
  std::optional<std::string> validation_file{};
  std::optional<std::string> test_file{};
  std::vector<std::string> target{};    ///< the columns to predict: one class, or values
  std::vector<std::string> features{};  ///< the inputs' columns; none: all that are no target
  std::string separator = ",";          ///< one byte
  Task task = Task::regression;
  bool normalize = true;           ///< the inputs
  bool normalize_targets = false;  ///< the values; losses and metrics are then of normalized ones
};

/// Loads CSV files into memory. Inputs are float32 (features). Targets are float32 (values), or a
/// class: the different texts of the target's column in the training file, in the order of their
/// bytes, or of numbers where all of them are numbers (then 1 and 1.0 are one class).
///
/// The other files need the same columns by name, in any order; further ones are passed over. The
/// validation set that load_data() splits off is part of the training file, so the scales include
/// it.
///
/// DataSets::fitted has the columns, how they are normalized, and the classes. With
/// `context.fitted` that is what all files are read by, the training file too; a class is then one
/// that it names. Where `context.needs_targets` is not set, a file may lack the targets' columns.
///
/// DataError, with file, line and column, for a field that is no number where one is needed, one
/// that float32 can't hold, an empty class and one that the training file does not have, and for
/// files without rows. ValueError for columns that are not there or are named twice, no feature, no
/// target, several targets of a classification, a separator that is not as above, and options that
/// contradict `context.fitted`.
[[nodiscard]] DataSets load_csv(const CsvSetOptions& options, const DataContext& context = {});

/// For the registry.
[[nodiscard]] DataKind csv_kind();

}  // namespace lockstep
