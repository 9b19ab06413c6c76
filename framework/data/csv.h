#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/data/data.h"

namespace lockstep {

/// What is done about missing values.
enum class CsvMissing {
  error,
  drop,  ///< their rows are left out
  mean,  ///< numbers get the mean of their column; a missing target's row is left out
};
/// What is done about texts that no category of the training set is.
enum class CsvUnseen {
  error,
  other,  ///< an input more for each column of categories
};

/// What a source of CSV files takes of them.
struct CsvSetOptions {
  enum class Task { regression, classification };

  std::string file{};  ///< the training set, as formats::CsvFile reads it
  std::optional<std::string> validation_file{};
  std::optional<std::string> test_file{};
  std::vector<std::string> target{};       ///< the columns to predict: one class, or values
  std::vector<std::string> features{};     ///< the inputs' columns; none: all that are no target
  std::vector<std::string> ignore{};       ///< columns that are neither
  std::string separator = ",";             ///< one byte
  std::string decimal = ".";               ///< one byte, before a number's fraction
  std::optional<std::string> thousands{};  ///< between a number's groups of digits
  Task task = Task::regression;
  bool normalize = true;  ///< the inputs
  bool normalize_targets =
      false;  ///< the values, for the model; `train` tells figures of the file's
  /// Fields that say that there is no value; blanks around them count no more than around a number.
  /// By default pandas' and "?". None: a text such as NA is a class, and no number.
  std::vector<std::string> missing_values = usual_missing_values();
  CsvMissing missing = CsvMissing::error;
  std::vector<std::string> categories{};  ///< inputs' columns, of which each text is an input
  bool finds_categories = false;          ///< all columns of text, but dates, are such
  CsvUnseen unseen = CsvUnseen::error;
  std::vector<std::string> dates{};                ///< inputs' columns that are dates
  std::vector<std::string> date_parts = {"days"};  ///< the numbers that are made of each
  std::string date_format = "iso";                 ///< or as strptime() takes it

  [[nodiscard]] static std::vector<std::string> usual_missing_values();
};

/// Loads CSV files into memory. Inputs are float32 (features). Targets are float32 (values), or a
/// class: the different texts of the target's column in the training file without blanks at their
/// ends, in the order of their bytes, or of numbers where all of them are numbers. These are told
/// apart by all of their digits: 1 and 1.0 are one class, 9007199254740992 and 9007199254740993 are
/// two. A label that is the number `context.ignored`, if that is below 0, is no class: its target
/// is this number. A warning names the columns with numbers that float32 moves by a half or more;
/// those that are written roughly, such as 1e20, do not count. True and False are 1 and 0 where a
/// number is needed.
///
/// A column of categories becomes an input for each, 1 or 0, in its place and in the order that
/// classes have; behind them one for missing values, where the training set has some and they are
/// filled, and one for texts that it does not have (CsvUnseen::other). A column of dates becomes
/// the numbers of `date_parts`: days (since 1970-01-01, with the time as a fraction), year, month,
/// day, weekday (Monday is 0), yearday (from 1), hour, minute, second; in UTC, if they say how far
/// from it they are. Columns of text that are neither are a DataError that names them all.
///
/// The other files need the same columns by name, in any order; further ones are passed over. The
/// inputs are all named columns but the targets, unless some are listed. Means, deviations and
/// categories are those of the training file without the samples that `context.validation` takes,
/// if there is no validation file; they are of the values that are there.
///
/// DataSets::fitted has the columns, how they are normalized, the categories, and the classes. With
/// `context.fitted` that is what all files are read by, the training file too; a class or category
/// is then one that it names. Where `context.needs_targets` is not set, a file may lack the
/// targets' columns, and, unless missing values are errors, some of these: such are NaN, or -1 for
/// classes. Rows without an input then stay, if damaged ones are kept, as damaged.
/// Dataset::columns() are all columns of the file, if `context.keeps_columns`.
///
/// DataError, with file, line and column, for missing values (all of a file), a field that is no
/// number or date where one is needed, one that float32 can't hold, an empty class, a class and a
/// category that the training set does not have, and a line with too few or too many fields: with
/// `context.keeps_damaged` one of batch(), which names all that is wrong with the row. But if all
/// cells of a column with several are wrong and `context.needs_targets` is set, one error of
/// loading says so of the column. Also for files
/// without rows, or with none left, a column without a value whose mean is needed, and where no
/// label is a class. ValueError for columns that are not there or are named twice, no feature,
/// no target, several targets of a classification, options whose rules are broken (`train keys`),
/// and such that contradict `context.fitted`.
[[nodiscard]] DataSets load_csv(const CsvSetOptions& options, const DataContext& context = {});

/// For the registry.
[[nodiscard]] DataKind csv_kind();

}  // namespace lockstep
