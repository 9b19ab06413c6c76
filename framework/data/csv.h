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
  /// Fields that say that there is no value; blanks around them count no more than around a number.
  /// By default pandas' and "?". None: a text such as NA is a class, and no number.
  std::vector<std::string> missing_values = usual_missing_values();

  [[nodiscard]] static std::vector<std::string> usual_missing_values();
};

/// Loads CSV files into memory. Inputs are float32 (features). Targets are float32 (values), or a
/// class: the different texts of the target's column in the training file without blanks at their
/// ends, in the order of their bytes, or of numbers where all of them are numbers. These are told
/// apart by all of their digits: 1 and 1.0 are one class, 9007199254740992 and 9007199254740993 are
/// two. A label that is the number `context.ignored`, if that is below 0, is no class: its target
/// is this number. A warning names the columns with numbers that float32 moves by a half or more;
/// those that are written roughly, such as 1e20, do not count.
///
/// The other files need the same columns by name, in any order; further ones are passed over. The
/// inputs are all named columns but the targets, unless some are listed. The validation set that
/// load_data() splits off is part of the training file, so the scales include it.
///
/// DataSets::fitted has the columns, how they are normalized, and the classes. With
/// `context.fitted` that is what all files are read by, the training file too; a class is then one
/// that it names. Where `context.needs_targets` is not set, a file may lack the targets' columns.
///
/// DataError, with file, line and column, for missing values (all of a file), a field that is no
/// number where one is needed, one that float32 can't hold, an empty class and one that the
/// training file does not have, and a line with too few or too many fields: with
/// `context.keeps_damaged` one of batch(), which names all that is wrong with the row. Also for
/// files without rows, and where no label is a class. ValueError for columns that are not
/// there or are named twice, no feature, no target, several targets of a classification, a
/// separator that is not as above, and options that contradict `context.fitted`.
[[nodiscard]] DataSets load_csv(const CsvSetOptions& options, const DataContext& context = {});

/// For the registry.
[[nodiscard]] DataKind csv_kind();

}  // namespace lockstep
