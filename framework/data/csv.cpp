#include "framework/data/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>

#include "framework/base/exact_sum.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/data/presence.h"
#include "framework/data/tensor_set.h"
#include "framework/formats/csv.h"
#include "framework/formats/data_file.h"
#include "framework/formats/decimal.h"

namespace lockstep {
namespace {

using formats::CsvFile;
using CsvTask = CsvSetOptions::Task;
using formats::Decimal;
using formats::trimmed;

constexpr double kExactInDouble = 9007199254740992;  // 2^53: from there on doubles are rounded

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
ColumnScale scale_of(std::span<const double> values) {
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

// A label that is no class and does not count, as numbers are told apart. Only one below 0: others
// may be a class's number.
std::optional<Decimal> ignored_label(const std::optional<std::int64_t>& ignored) {
  return ignored && *ignored < 0 ? Decimal::of(str(*ignored)) : std::nullopt;
}

bool is_ignored(std::string_view text, const std::optional<Decimal>& ignored) {
  return ignored && Decimal::of(text) == ignored;
}

// The names of a column's classes, in the order of their numbers.
std::vector<std::string> class_names_of(const CsvFile& file, const std::string& column,
                                        const std::optional<std::int64_t>& ignored) {
  const std::size_t place = file.column(column);
  const auto no_class = ignored_label(ignored);
  const bool is_numeric = file.is_numeric(place);
  std::map<Decimal, std::string> by_number;
  std::set<std::string_view> texts;
  for (std::size_t row = 0; row < file.rows(); ++row) {
    const std::string_view text = trimmed(file.text(row, place));
    if (text.empty()) file.refuse(row, place, "is no class");
    if (is_ignored(text, no_class)) continue;
    if (is_numeric) {
      by_number.emplace(*Decimal::of(text), text);
    } else {
      texts.insert(text);
    }
  }
  if (!is_numeric) return {texts.begin(), texts.end()};
  std::vector<std::string> names;
  for (const auto& [number, text] : by_number) names.push_back(text);
  return names;
}

// Finds the classes of a column. Numbers are told apart by their values, if all names are numbers,
// and other texts by their bytes, then without blanks at their ends.
class CsvClasses {
 public:
  CsvClasses(std::string column, std::vector<std::string> names,
             const std::optional<std::int64_t>& ignored)
      : column_(std::move(column)), names_(std::move(names)), ignored_(ignored.value_or(0)) {
    no_class_ = ignored_label(ignored);
    is_numeric_ = std::ranges::all_of(
        names_, [](const std::string& name) { return formats::csv_number(name).has_value(); });
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const auto label = static_cast<std::int64_t>(i);
      if (is_numeric_) {
        by_number_.emplace(*Decimal::of(names_[i]), label);
      } else {
        by_text_.emplace(names_[i], label);
        by_trimmed_.emplace(trimmed(names_[i]), label);
      }
    }
  }

  /// The class of each row.
  [[nodiscard]] at::Tensor labels(const CsvFile& file) const {
    const std::size_t place = file.column(column_);
    at::Tensor labels = at::empty({static_cast<std::int64_t>(file.rows())}, at::kLong);
    auto* into = labels.data_ptr<std::int64_t>();
    for (std::size_t row = 0; row < file.rows(); ++row) {
      const std::string_view text = file.text(row, place);
      std::int64_t label = is_numeric_ ? label_of_number(text) : label_of_text(text);
      if (label < 0 && is_ignored(text, no_class_)) {
        label = ignored_;
      } else if (label < 0) {
        const bool is_odd = is_numeric_ && !formats::csv_number(text);
        file.refuse(row, place,
                    is_odd ? "is no finite number"
                           : str("is none of the training file's classes: ",
                                 shortened(formats::quoted(names_), 200)));
      }
      *into++ = label;
    }
    return labels;
  }

 private:
  // -1: there is none.
  template <typename Map, typename Name>
  [[nodiscard]] static std::int64_t found_in(const Map& map, const Name& name) {
    const auto found = map.find(name);
    return found == map.end() ? -1 : found->second;
  }
  [[nodiscard]] std::int64_t label_of_number(std::string_view text) const {
    const auto number = Decimal::of(text);
    return number ? found_in(by_number_, *number) : -1;
  }
  [[nodiscard]] std::int64_t label_of_text(std::string_view text) const {
    const std::int64_t same = found_in(by_text_, text);
    return same >= 0 ? same : found_in(by_trimmed_, trimmed(text));
  }

  using ByText = std::map<std::string_view, std::int64_t>;  // of names_

  std::string column_;
  std::vector<std::string> names_;
  std::int64_t ignored_;
  std::optional<Decimal> no_class_;
  bool is_numeric_ = false;
  std::map<Decimal, std::int64_t> by_number_;
  ByText by_text_;
  ByText by_trimmed_;
};

// Tells missing values.
class MissingValues {
 public:
  explicit MissingValues(const std::vector<std::string>& spellings) {
    for (const std::string& spelling : spellings) {
      const std::string_view text = trimmed(spelling);
      spellings_.insert(text);
      last_bytes_[last_byte(text)] = true;
    }
  }

  [[nodiscard]] bool contains(std::string_view text) const {
    text = trimmed(text);
    return last_bytes_[last_byte(text)] && spellings_.contains(text);
  }

  /// DataError with where they are, if there are some in these columns.
  void check(const std::string& path, const CsvFile& file,
             const std::vector<std::string>& columns) const {
    constexpr std::int64_t kMostTold = 10;
    std::int64_t count = 0;
    std::string places;
    std::vector<std::size_t> numbers;
    for (const std::string& column : columns) numbers.push_back(file.column(column));
    for (std::size_t row = 0; row < file.rows() && !spellings_.empty(); ++row) {
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::string_view text = file.text(row, numbers[i]);
        if (!contains(text) || ++count > kMostTold) continue;
        places += str(count == 1 ? "" : "; ", "line ", file.line_of(row), ", column '",
                      cut(columns[i]), "': '", cut(text), "'");
      }
    }
    if (count == 0) return;
    if (count > kMostTold) places += str("; and ", count - kMostTold, " more");
    formats::fail_file(
        path, str("it has ", counted(count, "missing value"), ": ", places,
                  "; fill them or leave these rows out; data.missing_values says what counts as "
                  "missing ([]: nothing)"));
  }

 private:
  // Of an empty text 0.
  static std::size_t last_byte(std::string_view text) {
    return text.empty() ? 0 : static_cast<unsigned char>(text.back());
  }

  std::unordered_set<std::string_view> spellings_;
  std::array<bool, 256> last_bytes_{};  // of all spellings; hardly a number ends with one of them
};

// Which columns of a table have numbers that float32 rounds.
class RoundedColumns {
 public:
  // `number` is what `text` says, `taken` what is left of it.
  void note(const CsvFile& file, std::size_t row, std::size_t column, double number, double taken) {
    if (!noted_.empty() && noted_.back() == file.header()[column]) return;
    const std::string_view text = trimmed(file.text(row, column));
    if (!is_rounded(text, number, taken)) return;
    noted_.push_back(file.header()[column]);
    if (noted_.size() == 1) {
      first_ =
          str("line ", file.line_of(row), " has ", cut(text), ", which becomes ", fixed(taken));
    }
  }

  void warn(const std::string& path) const {
    if (noted_.empty()) return;
    log_warning(str("csv: float32 rounds numbers of '", path, "' in ",
                    noted_.size() == 1 ? "the column " : "the columns ", formats::quoted(noted_),
                    ": ", first_));
  }

 private:
  // Numbers such as 0.1 are always rounded. What counts are the digits before the point, where a
  // number is written with all of them.
  static bool is_rounded(std::string_view text, double number, double taken) {
    if (text.find_first_of("eE") != std::string_view::npos) return false;
    return std::abs(taken - number) >= 0.5 ||
           (std::abs(number) >= kExactInDouble && Decimal::of(text) != Decimal::of(fixed(number)));
  }

  static std::string fixed(double number) {
    std::array<char, 400> text{};
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed).ptr;
    return {text.data(), end};
  }

  std::vector<std::string> noted_;
  std::string first_;
};

// Whether float32 certainly keeps the digits before a number's point, or a constant column its one
// number.
bool keeps_whole(double number, const ColumnScale& scale) {
  constexpr double kFloats = 4194304;  // 2^22
  return scale.deviation == 0 ||
         (std::abs(number - scale.mean) < kFloats && std::abs(number) < kExactInDouble);
}

// Where scales come from.
enum class Scaling { none, known, fitted };

// float32 (rows, columns): as the file has them, by `scales`, or by those of the values themselves,
// which `scales` then gets.
at::Tensor values_of_columns(const std::string& path, const CsvFile& file,
                             const std::vector<std::string>& columns, Scaling scaling,
                             std::vector<ColumnScale>& scales, RoundedColumns& rounded) {
  // So many at once stay in a near cache; of a long table it is one.
  constexpr std::size_t kTogether = 64;
  constexpr std::size_t kNumbersTogether = std::size_t{1} << 17;
  const std::size_t most = std::clamp<std::size_t>(kNumbersTogether / file.rows(), 1, kTogether);
  const std::string lack =
      lack_of_memory(file.rows() * (columns.size() * sizeof(float) + most * sizeof(double)));
  if (!lack.empty()) {
    formats::fail_file(path, str("its ", file.rows(), " rows of ", columns.size(),
                                 " columns take, as numbers, ", lack));
  }
  const auto width = static_cast<std::int64_t>(columns.size());
  at::Tensor values = at::empty({static_cast<std::int64_t>(file.rows()), width}, at::kFloat);
  for (std::size_t begin = 0; begin < columns.size(); begin += most) {
    std::vector<std::size_t> places;
    for (std::size_t i = begin; i < std::min(begin + most, columns.size()); ++i) {
      places.push_back(file.column(columns[i]));
    }
    const std::vector<double> together = file.numbers(places);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto numbers = std::span(together).subspan(i * file.rows(), file.rows());
      if (scaling == Scaling::fitted) scales.push_back(scale_of(numbers));
      const bool is_scaled = scaling != Scaling::none;
      const ColumnScale scale = is_scaled ? scales[begin + i] : ColumnScale();
      float* into = values.data_ptr<float>() + begin + i;
      for (std::size_t row = 0; row < numbers.size(); ++row, into += width) {
        *into = static_cast<float>(is_scaled ? scaled(numbers[row], scale) : numbers[row]);
        if (!std::isfinite(*into)) file.refuse(row, places[i], "is too large for float32");
        if (keeps_whole(numbers[row], scale)) continue;
        rounded.note(file, row, places[i], numbers[row], *into * scale.deviation + scale.mean);
      }
    }
  }
  return values;
}

// The features' columns, after the targets' are found to be right.
std::vector<std::string> check_columns(const CsvFile& file, const CsvSetOptions& options) {
  std::set<std::size_t> taken;
  const auto take = [&](const std::string& name) {
    require(taken.insert(file.column(name)).second,
            "csv: data.target and data.features have the column '", cut(name), "' twice");
  };
  require(!options.target.empty(), "csv: data.target is empty, but must name a column of '",
          options.file, "', which has ", formats::quoted(file.header()));
  require(options.task == CsvTask::regression || options.target.size() == 1,
          "csv: data.target has ", options.target.size(),
          " columns, but classification has classes of one");
  for (const std::string& name : options.target) take(name);
  std::vector<std::string> features = options.features;
  for (std::size_t i = 0; i < file.columns() && options.features.empty(); ++i) {
    const std::string& name = file.header()[i];
    if (!name.empty() && !taken.contains(i)) features.push_back(name);
  }
  if (options.features.empty() && file.header()[0].empty()) {
    log_info(str("csv: the first column of '", options.file,
                 "' has no name: it is taken for an index and left out"));
  }
  require(!features.empty(), "csv: '", options.file, "' has no column but the target");
  if (!options.features.empty()) std::ranges::for_each(features, take);
  return features;
}

// ValueError unless the options ask for what was fitted.
void check_same(const CsvSetOptions& options, const Fitted& fitted) {
  const auto check = [](bool is_same, const char* key, const std::string& asked,
                        const std::string& trained) {
    require(is_same, "csv: data.", key, " is ", shortened(asked, 1000),
            ", but the model was trained with ", shortened(trained, 1000));
  };
  const auto list = [](const std::vector<std::string>& names) {
    return str("[", formats::quoted(names), "]");
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
  return std::ranges::none_of(columns,
                              [&](const std::string& name) { return file.find(name).has_value(); });
}

// For DataSets::notes: which columns of the training file are used, and how.
std::vector<std::string> notes_of(const CsvFile& train, const CsvSetOptions& options,
                                  const Fitted& fitted) {
  // Names that begin or end with blanks are in quotes, so that these are seen.
  const auto some = [](std::vector<std::string> columns) {
    for (std::string& name : columns) {
      if (trimmed(name) != name) name = str("'", name, "'");
    }
    return shortened(listed(columns, 10), 400);
  };
  std::set<std::size_t> used;
  for (const auto* const names : {&fitted.inputs, &fitted.targets}) {
    for (const std::string& name : *names) {
      if (const auto place = train.find(name)) used.insert(*place);
    }
  }
  std::vector<std::string> left_out;
  for (std::size_t i = 0; i < train.columns(); ++i) {
    const std::string& name = train.header()[i];
    if (!used.contains(i)) left_out.push_back(name.empty() ? "one without a name" : name);
  }
  const auto count = [](const auto& columns, const char* one) {
    return counted(std::ssize(columns), one);
  };
  std::vector<std::string> constant;
  for (std::size_t i = 0; i < fitted.input_scales.size(); ++i) {
    if (fitted.input_scales[i].deviation == 0) constant.push_back(fitted.inputs[i]);
  }
  const bool has_values = fitted.class_count == 0;
  const std::string scaled = "normalized to mean 0 and deviation 1 of the training file";
  const std::string plain = "as the file has them";
  std::string scaling = str("inputs are ", options.normalize ? scaled : plain);
  if (has_values) {
    const bool are_scaled = !fitted.target_scales.empty();
    scaling = are_scaled == options.normalize
                  ? str("inputs and targets are ", are_scaled ? scaled : plain)
                  : str(scaling, ", targets ", are_scaled ? scaled : plain);
  }
  if (!constant.empty()) {
    scaling += str("; ", count(constant, "constant column"),
                   constant.size() == 1 ? " becomes" : " become", " 0 (", some(constant), ")");
  }
  return {str("columns: ", count(fitted.inputs, "input"), " (", some(fitted.inputs), "), ",
              count(fitted.targets, "target"), " (", some(fitted.targets), "), ",
              left_out.empty() ? "none left out"
                               : str(left_out.size(), " left out (", some(left_out), ")")),
          scaling};
}

void fit_classes(const CsvFile& file, const CsvSetOptions& options, const DataContext& context,
                 Fitted& fitted) {
  fitted.classes = class_names_of(file, options.target[0], context.ignored);
  fitted.class_count = std::ssize(fitted.classes);
  if (!fitted.classes.empty()) return;
  formats::fail_file(options.file, str("all labels in column '", cut(options.target[0]), "' are ",
                                       *context.ignored, ", which does not count"));
}

// `file`, which lies at `path`, read as `fitted` says; with `fits` that is found by it first.
std::shared_ptr<const Dataset> table_set(const std::string& path, const CsvFile& file, bool fits,
                                         Fitted& fitted, const CsvSetOptions& options,
                                         const DataContext& context) {
  if (fits) {
    fitted.inputs = check_columns(file, options);
    fitted.targets = options.target;
  }
  const bool has_targets = context.needs_targets || !has_none_of(file, fitted.targets);
  std::vector<std::string> columns = fitted.inputs;
  if (has_targets) std::ranges::copy(fitted.targets, std::back_inserter(columns));
  MissingValues(options.missing_values).check(path, file, columns);
  if (fits && options.task == CsvTask::classification) {
    fit_classes(file, options, context, fitted);
  }
  const bool has_classes = fitted.class_count > 0;
  const auto scaling = [&](bool is_asked, const std::vector<ColumnScale>& scales) {
    if (fits) return is_asked ? Scaling::fitted : Scaling::none;
    return scales.empty() ? Scaling::none : Scaling::known;
  };
  RoundedColumns rounded;
  std::optional<at::Tensor> targets;
  if (has_targets) {
    targets = has_classes
                  ? CsvClasses(fitted.targets[0], fitted.classes, context.ignored).labels(file)
                  : values_of_columns(path, file, fitted.targets,
                                      scaling(options.normalize_targets, fitted.target_scales),
                                      fitted.target_scales, rounded);
  }
  at::Tensor inputs =
      values_of_columns(path, file, fitted.inputs, scaling(options.normalize, fitted.input_scales),
                        fitted.input_scales, rounded);
  rounded.warn(path);
  const std::vector<std::int64_t> shape{std::ssize(fitted.inputs)};
  return std::make_shared<const TensorSet>(std::move(inputs), std::move(targets),
                                           has_classes
                                               ? class_sample(shape, fitted.class_count)
                                               : value_sample(shape, std::ssize(fitted.targets)),
                                           fitted.classes);
}

// For DataContext::on_damage: tells all that can't be read of the files that are wanted, and of
// each the first cells that are missing, or no numbers where these are needed. Returns whether
// there was anything.
bool tell_damaged_tables(const CsvSetOptions& options, const DataContext& context) {
  constexpr std::int64_t kMostCells = 100;
  std::int64_t told = 0;
  const auto tell = [&](const DataError& error) {
    ++told;
    context.on_damage(error);
  };
  std::vector<std::string> columns = options.features;
  const auto look_at = [&](const std::string& path, bool is_train) {
    const CsvFile file = open_csv(path, options.separator);
    if (is_train) columns = check_columns(file, options);
    std::vector<std::string> used = columns;
    used.insert(used.end(), options.target.begin(), options.target.end());
    const bool has_classes = options.task == CsvTask::classification;
    const MissingValues missing(options.missing_values);
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const std::size_t place = file.column(used[i]);
      const bool is_number = i < columns.size() || !has_classes;
      for (std::size_t row = 0; row < file.rows(); ++row) {
        const std::string_view text = file.text(row, place);
        const bool is_missing = missing.contains(text);
        if (!is_missing && (!is_number || formats::csv_number(text))) continue;
        if (++wrong > kMostCells) continue;
        try {
          file.refuse(row, place, is_missing ? "is a missing value" : "is no finite number");
        } catch (const DataError& error) {
          tell(error);
        }
      }
    }
    if (wrong > kMostCells) {
      tell(DataError(str("data file '", path, "': ", wrong - kMostCells,
                         " more cells are no finite numbers")));
    }
  };
  const auto try_file = [&](bool is_wanted, const std::optional<std::string>& path, bool is_train) {
    if (!is_wanted || !path) return;
    try {
      look_at(*path, is_train);
    } catch (const DataError& error) {
      tell(error);
    }
  };
  try_file(context.wanted.train, options.file, true);
  try_file(context.wanted.validation, options.validation_file, false);
  try_file(context.wanted.test, options.test_file, false);
  return told > 0;
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
      {"missing_values",
       keys::list(options.missing_values,
                  {"at most 100 bytes", [](const auto& text) { return text.size() <= 100; }}),
       "fields that say that a value is missing, which is an error; []: none is missing",
       {.before = "[]"}},
      {"normalize", keys::flag(options.normalize),
       "give inputs mean 0 and deviation 1, by the training set"},
      {"normalize_targets",
       keys::flag(options.normalize_targets),
       "the same for targets that are numbers: losses and metrics are then of these",
       {.problem = targets_problem, .others = {"task"}}},
  };
}

}  // namespace

std::vector<std::string> CsvSetOptions::usual_missing_values() {
  return {"",     "?",    "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN",
          "-NaN", "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",
          "NULL", "NaN",  "None",   "n/a",      "nan",  "null"};
}

DataSets load_csv(const CsvSetOptions& options, const DataContext& context) {
  require(kSeparator.holds(options.separator), "csv: data.separator is '", options.separator,
          "', but must be ", kSeparator.text);
  if (context.fitted) check_same(options, *context.fitted);
  if (context.on_damage && tell_damaged_tables(options, context)) return {};
  DataSets sets;
  if (context.fitted) sets.fitted = *context.fitted;
  if (context.wanted.train || !context.fitted) {
    const CsvFile train = open_csv(options.file, options.separator);
    sets.train = table_set(options.file, train, !context.fitted, sets.fitted, options, context);
    sets.notes = notes_of(train, options, sets.fitted);
  }
  const auto other = [&](bool is_wanted, const std::optional<std::string>& file) {
    if (!is_wanted || !file) return std::shared_ptr<const Dataset>();
    return table_set(*file, open_csv(*file, options.separator), /*fits=*/false, sets.fitted,
                     options, context);
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
