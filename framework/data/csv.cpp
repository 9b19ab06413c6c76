#include "framework/data/csv.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>

#include "framework/base/exact_sum.h"
#include "framework/base/text.h"
#include "framework/data/presence.h"
#include "framework/data/tensor_set.h"
#include "framework/formats/csv.h"
#include "framework/formats/data_file.h"

namespace lockstep {
namespace {

using formats::CsvFile;
using CsvTask = CsvSetOptions::Task;

CsvFile open_csv(const std::string& path, const std::string& separator) {
  data::require_there("csv", path,
                      "it must be a table of text whose first line names the columns, as "
                      "spreadsheets and pandas' DataFrame.to_csv(index=False) write it");
  CsvFile file(path, {.separator = separator[0]});
  if (file.rows() == 0) formats::fail_file(path, "it has no rows, but its header");
  return file;
}

// The sums are exact: the order of rows does not matter. Those of squares are of values that were
// scaled to -1 … 1, so that none is too large.
ColumnScale scale_of(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  if (least == most) return {.mean = least, .deviation = 0};
  const auto count = static_cast<double>(values.size());
  ExactSum sum;
  for (const double value : values) sum.add(value - least);
  const double mean = least + sum.value() / count;
  const double spread = most - least;
  ExactSum squares;
  for (const double value : values) squares.add(std::pow((value - mean) / spread, 2));
  return {.mean = mean, .deviation = spread * std::sqrt(squares.value() / count)};
}

double scaled(double value, const ColumnScale& scale) {
  return scale.deviation == 0 ? 0 : (value - scale.mean) / scale.deviation;
}

// The classes of a column. Numbers are told apart by their values, and other texts by their bytes.
class CsvClasses {
 public:
  CsvClasses(const CsvFile& file, const std::string& column) : column_(column) {
    const std::size_t place = file.column(column);
    is_numeric_ = file.is_numeric(place);
    if (is_numeric_) {
      const std::vector<double> numbers = file.numbers(place);
      for (std::size_t row = 0; row < numbers.size(); ++row) {
        by_number_.emplace(numbers[row], file.text(row, place));
      }
      for (const auto& [number, text] : by_number_) names_.push_back(text);
      return;
    }
    std::set<std::string_view> texts;
    for (std::size_t row = 0; row < file.rows(); ++row) {
      if (file.text(row, place).empty()) file.refuse(row, place, "is no class");
      texts.insert(file.text(row, place));
    }
    names_.assign(texts.begin(), texts.end());
  }

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  /// The class of each row.
  [[nodiscard]] at::Tensor labels(const CsvFile& file) const {
    const std::size_t place = file.column(column_);
    at::Tensor labels = at::empty({static_cast<std::int64_t>(file.rows())}, at::kLong);
    auto* into = labels.data_ptr<std::int64_t>();
    const std::vector<double> numbers = is_numeric_ ? file.numbers(place) : std::vector<double>();
    for (std::size_t row = 0; row < file.rows(); ++row) {
      const std::int64_t label =
          is_numeric_ ? label_of(numbers[row]) : label_of(file.text(row, place));
      if (label < 0) {
        file.refuse(row, place,
                    str("is none of the training file's classes: ", shortened(join(names_), 200)));
      }
      *into++ = label;
    }
    return labels;
  }

 private:
  // -1: there is none.
  [[nodiscard]] std::int64_t label_of(double number) const {
    const auto found = by_number_.find(number);
    return found == by_number_.end() ? -1 : std::distance(by_number_.begin(), found);
  }
  [[nodiscard]] std::int64_t label_of(std::string_view text) const {
    const auto found = std::ranges::lower_bound(names_, text, std::less<>());
    return found == names_.end() || *found != text ? -1 : found - names_.begin();
  }

  std::string column_;
  bool is_numeric_ = false;
  std::map<double, std::string> by_number_;
  std::vector<std::string> names_;
};

std::vector<ColumnScale> scales_of(const CsvFile& file, const std::vector<std::string>& columns,
                                   bool is_normalized) {
  std::vector<ColumnScale> scales(columns.size());
  for (std::size_t i = 0; is_normalized && i < columns.size(); ++i) {
    scales[i] = scale_of(file.numbers(file.column(columns[i])));
  }
  return scales;
}

// float32 (rows, columns)
at::Tensor values_of_columns(const CsvFile& file, const std::vector<std::string>& columns,
                             const std::vector<ColumnScale>& scales) {
  const auto width = static_cast<std::int64_t>(columns.size());
  at::Tensor values = at::empty({static_cast<std::int64_t>(file.rows()), width}, at::kFloat);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::size_t place = file.column(columns[i]);
    const std::vector<double> numbers = file.numbers(place);
    float* into = values.data_ptr<float>() + i;
    for (std::size_t row = 0; row < numbers.size(); ++row, into += width) {
      *into = static_cast<float>(scaled(numbers[row], scales[i]));
      if (!std::isfinite(*into)) file.refuse(row, place, "is too large for float32");
    }
  }
  return values;
}

// The features' columns, after the targets' are found to be right.
std::vector<std::string> check_columns(const CsvFile& file, const CsvSetOptions& options) {
  std::set<std::string> taken;
  const auto take = [&](const std::string& name) {
    (void)file.column(name);
    require(taken.insert(name).second, "csv: data.target and data.features have the column '",
            cut(name), "' twice");
  };
  require(!options.target.empty(), "csv: data.target is empty, but must name a column of '",
          options.file, "', which has ", shortened(join(file.header()), 1000));
  require(options.task == CsvTask::regression || options.target.size() == 1,
          "csv: data.target has ", options.target.size(),
          " columns, but classification has classes of one");
  for (const std::string& name : options.target) take(name);
  std::vector<std::string> features = options.features;
  if (features.empty()) {
    std::ranges::copy_if(file.header(), std::back_inserter(features),
                         [&](const std::string& name) { return !taken.contains(name); });
  }
  require(!features.empty(), "csv: '", options.file, "' has no column but the target");
  if (!options.features.empty()) std::ranges::for_each(features, take);
  return features;
}

std::shared_ptr<const Dataset> table_set(const CsvFile& file, const CsvSets& all,
                                         const CsvClasses* classes) {
  const std::vector<std::int64_t> shape{std::ssize(all.features)};
  return std::make_shared<const TensorSet>(
      values_of_columns(file, all.features, all.feature_scales),
      classes != nullptr ? classes->labels(file)
                         : values_of_columns(file, all.targets, all.target_scales),
      classes != nullptr ? class_sample(shape, std::ssize(classes->names()))
                         : value_sample(shape, std::ssize(all.targets)),
      all.classes);
}

const keys::Rule<std::string> kSeparator{
    "one byte that is no quote and no line's end", [](const std::string& text) {
      return text.size() == 1 && std::string_view("\"\r\n").find(text) == std::string_view::npos;
    }};

keys::Keys csv_keys(CsvSetOptions& options) {
  const keys::Rule<std::string> column = keys::of_length("a column's name", 1000);
  const auto targets_problem = [&options] {
    return options.normalize_targets && options.task == CsvTask::classification
               ? "classes have no mean: only for data.task regression"
               : "";
  };
  return {
      file_key("file", options.file, "the training set: a table whose first line names columns"),
      file_key("validation_file", options.validation_file, "the validation set, with its columns"),
      file_key("test_file", options.test_file, "the test set, with its columns"),
      {"target",
       keys::text_or_list(options.target, column),
       "the column that is predicted, or several",
       {.required = options.target.empty()}},
      {"features", keys::list(options.features, column),
       "the columns that are inputs; []: all but the target"},
      {"separator", keys::text(options.separator, kSeparator), "what stands between two fields"},
      {"task", keys::one_of(options.task, {"regression", "classification"}),
       "whether the target is a number or the name of a class"},
      {"normalize", keys::flag(options.normalize),
       "give inputs mean 0 and deviation 1, by the training set"},
      {"normalize_targets",
       keys::flag(options.normalize_targets),
       "the same for targets that are numbers: losses and metrics are then of these",
       {.problem = targets_problem, .others = {"task"}}},
  };
}

}  // namespace

CsvSets load_csv(const CsvSetOptions& options) {
  require(kSeparator.holds(options.separator), "csv: data.separator is '", options.separator,
          "', but must be ", kSeparator.text);
  const CsvFile train = open_csv(options.file, options.separator);
  CsvSets all{.features = check_columns(train, options), .targets = options.target};
  all.feature_scales = scales_of(train, all.features, options.normalize);
  std::unique_ptr<const CsvClasses> classes;
  if (options.task == CsvTask::classification) {
    classes = std::make_unique<const CsvClasses>(train, options.target[0]);
    all.classes = classes->names();
  } else {
    all.target_scales = scales_of(train, all.targets, options.normalize_targets);
  }
  const auto other = [&](const std::optional<std::string>& file) {
    return file ? table_set(open_csv(*file, options.separator), all, classes.get()) : nullptr;
  };
  all.sets = {.train = table_set(train, all, classes.get()),
              .validation = other(options.validation_file),
              .test = other(options.test_file)};
  return all;
}

DataKind csv_kind() {
  return data_kind<CsvSetOptions>(
      "csv", "tables of text: columns of numbers, and numbers or classes to predict", csv_keys,
      [](const CsvSetOptions& options, const DataContext& /*context*/) {
        return load_csv(options).sets;
      });
}

}  // namespace lockstep
