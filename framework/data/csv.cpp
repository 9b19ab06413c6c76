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
                      str("it must be a table of text whose first line names the columns, as "
                          "spreadsheets and pandas' DataFrame.to_csv(index=False) write it",
                          data::kSeeConfigs));
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

// The names of a column's classes, in the order of their numbers.
std::vector<std::string> class_names_of(const CsvFile& file, const std::string& column) {
  const std::size_t place = file.column(column);
  if (file.is_numeric(place)) {
    std::map<double, std::string> by_number;
    const std::vector<double> numbers = file.numbers(place);
    for (std::size_t row = 0; row < numbers.size(); ++row) {
      by_number.emplace(numbers[row], file.text(row, place));
    }
    std::vector<std::string> names;
    for (const auto& [number, text] : by_number) names.push_back(text);
    return names;
  }
  std::set<std::string_view> texts;
  for (std::size_t row = 0; row < file.rows(); ++row) {
    if (file.text(row, place).empty()) file.refuse(row, place, "is no class");
    texts.insert(file.text(row, place));
  }
  return {texts.begin(), texts.end()};
}

// Finds the classes of a column. Numbers are told apart by their values, if all names are numbers,
// and other texts by their bytes.
class CsvClasses {
 public:
  CsvClasses(std::string column, std::vector<std::string> names)
      : column_(std::move(column)), names_(std::move(names)) {
    is_numeric_ = std::ranges::all_of(
        names_, [](const std::string& name) { return formats::csv_number(name).has_value(); });
    for (const std::string& name : names_) {
      const std::int64_t label = std::ssize(by_number_);
      if (is_numeric_) by_number_.emplace(*formats::csv_number(name), label);
    }
  }

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
    return found == by_number_.end() ? -1 : found->second;
  }
  [[nodiscard]] std::int64_t label_of(std::string_view text) const {
    const auto found = std::ranges::lower_bound(names_, text, std::less<>());
    return found == names_.end() || *found != text ? -1 : found - names_.begin();
  }

  std::string column_;
  bool is_numeric_ = false;
  std::map<double, std::int64_t> by_number_;
  std::vector<std::string> names_;
};

std::vector<ColumnScale> scales_of(const CsvFile& file, const std::vector<std::string>& columns) {
  std::vector<ColumnScale> scales;
  for (const std::string& column : columns) {
    scales.push_back(scale_of(file.numbers(file.column(column))));
  }
  return scales;
}

// float32 (rows, columns). Without scales the values are as the file has them.
at::Tensor values_of_columns(const CsvFile& file, const std::vector<std::string>& columns,
                             const std::vector<ColumnScale>& scales) {
  const auto width = static_cast<std::int64_t>(columns.size());
  at::Tensor values = at::empty({static_cast<std::int64_t>(file.rows()), width}, at::kFloat);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::size_t place = file.column(columns[i]);
    const std::vector<double> numbers = file.numbers(place);
    float* into = values.data_ptr<float>() + i;
    for (std::size_t row = 0; row < numbers.size(); ++row, into += width) {
      *into = static_cast<float>(scales.empty() ? numbers[row] : scaled(numbers[row], scales[i]));
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

Fitted fit(const CsvFile& file, const CsvSetOptions& options) {
  Fitted fitted{.inputs = check_columns(file, options), .targets = options.target};
  if (options.normalize) fitted.input_scales = scales_of(file, fitted.inputs);
  if (options.task == CsvTask::classification) {
    fitted.classes = class_names_of(file, options.target[0]);
    fitted.class_count = std::ssize(fitted.classes);
  } else if (options.normalize_targets) {
    fitted.target_scales = scales_of(file, fitted.targets);
  }
  return fitted;
}

// ValueError unless the options ask for what was fitted.
void check_same(const CsvSetOptions& options, const Fitted& fitted) {
  const auto check = [](bool is_same, const char* key, const std::string& asked,
                        const std::string& trained) {
    require(is_same, "csv: data.", key, " is ", shortened(asked, 1000),
            ", but the model was trained with ", shortened(trained, 1000));
  };
  const auto list = [](const std::vector<std::string>& names) {
    return str("[", join(names), "]");
  };
  check(options.target == fitted.targets, "target", list(options.target), list(fitted.targets));
  check(options.features.empty() || options.features == fitted.inputs, "features",
        list(options.features), list(fitted.inputs));
  const bool has_classes = fitted.class_count > 0;
  const auto task = [](bool classes) { return classes ? "classification" : "regression"; };
  const bool wants_classes = options.task == CsvTask::classification;
  check(wants_classes == has_classes, "task", task(wants_classes), task(has_classes));
  const auto check_flag = [&](const char* key, bool asked, const std::vector<ColumnScale>& scales) {
    check(asked == !scales.empty(), key, asked ? "true" : "false", asked ? "false" : "true");
  };
  check_flag("normalize", options.normalize, fitted.input_scales);
  if (has_classes) return;
  check_flag("normalize_targets", options.normalize_targets, fitted.target_scales);
}

bool has_none_of(const CsvFile& file, const std::vector<std::string>& columns) {
  return std::ranges::none_of(columns, [&](const std::string& column) {
    return std::ranges::count(file.header(), column) > 0;
  });
}

// `file`, read as `fitted` says.
std::shared_ptr<const Dataset> table_set(const CsvFile& file, const Fitted& fitted,
                                         bool needs_targets) {
  const std::vector<std::int64_t> shape{std::ssize(fitted.inputs)};
  const bool has_classes = fitted.class_count > 0;
  std::optional<at::Tensor> targets;
  if (needs_targets || !has_none_of(file, fitted.targets)) {
    targets = has_classes ? CsvClasses(fitted.targets[0], fitted.classes).labels(file)
                          : values_of_columns(file, fitted.targets, fitted.target_scales);
  }
  return std::make_shared<const TensorSet>(
      values_of_columns(file, fitted.inputs, fitted.input_scales), std::move(targets),
      has_classes ? class_sample(shape, fitted.class_count)
                  : value_sample(shape, std::ssize(fitted.targets)),
      fitted.classes);
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

DataSets load_csv(const CsvSetOptions& options, const DataContext& context) {
  require(kSeparator.holds(options.separator), "csv: data.separator is '", options.separator,
          "', but must be ", kSeparator.text);
  if (context.fitted) check_same(options, *context.fitted);
  DataSets sets;
  if (context.fitted) sets.fitted = *context.fitted;
  if (context.wanted.train || !context.fitted) {
    const CsvFile train = open_csv(options.file, options.separator);
    if (!context.fitted) sets.fitted = fit(train, options);
    sets.train = table_set(train, sets.fitted, context.needs_targets);
  }
  const auto other = [&](bool is_wanted, const std::optional<std::string>& file) {
    if (!is_wanted || !file) return std::shared_ptr<const Dataset>();
    return table_set(open_csv(*file, options.separator), sets.fitted, context.needs_targets);
  };
  sets.validation = other(context.wanted.validation, options.validation_file);
  sets.test = other(context.wanted.test, options.test_file);
  return sets;
}

DataKind csv_kind() {
  return data_kind<CsvSetOptions>(
      "csv", "tables of text: columns of numbers, and numbers or classes to predict", csv_keys,
      load_csv);
}

}  // namespace lockstep
