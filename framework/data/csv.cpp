#include "framework/data/csv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>

#include "framework/base/exact_sum.h"
#include "framework/base/logging.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/data/tensor_set.h"
#include "framework/formats/csv.h"
#include "framework/formats/data_file.h"
#include "framework/formats/decimal.h"

namespace lockstep {
namespace {

using formats::CsvFile;
using CsvTask = CsvSetOptions::Task;
using formats::Decimal;
using formats::kExactInDouble;
using formats::trimmed;

CsvFile open_csv(const std::string& path, const CsvSetOptions& options,
                 const DataContext& context) {
  data::require_there("csv", path,
                      str("it must be a table of text whose first line names the columns, as "
                          "spreadsheets and pandas' DataFrame.to_csv(index=False) write it",
                          data::kSeeConfigs));
  CsvFile file(path, {.separator = options.separator[0], .keeps_ragged = context.keeps_damaged});
  if (file.rows() == 0) formats::fail_file(path, "it has only its header, and no rows");
  return file;
}

// Of all that are not NaN. The sums are exact: the order of rows does not matter. Those of squares
// are of values that were scaled to -1 … 1, so that none is too large.
ColumnScale scale_of(std::span<const double> values) {
  std::vector<double> known;
  if (std::ranges::any_of(values, [](double value) { return std::isnan(value); })) {
    std::ranges::copy_if(values, std::back_inserter(known),
                         [](double value) { return !std::isnan(value); });
    values = known;
  }
  if (values.empty()) return {};
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

// Tells missing values.
class MissingValues {
 public:
  explicit MissingValues(const std::vector<std::string>& spellings) {
    for (const std::string& spelling : spellings) {
      const std::string_view text = trimmed(spelling);
      spellings_.emplace(text);
      last_bytes_[last_byte(text)] = true;
    }
  }

  [[nodiscard]] bool empty() const { return spellings_.empty(); }
  [[nodiscard]] bool contains(std::string_view text) const {
    text = trimmed(text);
    return last_bytes_[last_byte(text)] && spellings_.contains(text);
  }

 private:
  // 0 for an empty text.
  static std::size_t last_byte(std::string_view text) {
    return text.empty() ? 0 : static_cast<unsigned char>(text.back());
  }

  std::set<std::string, std::less<>> spellings_;
  std::array<bool, 256> last_bytes_{};  // of all spellings; hardly a number ends with one of them
};

// What is wrong with a table's cells: an error, or, where rows are kept, what batch() says of them.
class WrongCells {
 public:
  WrongCells(std::string path, const CsvFile& file, const CsvSetOptions& options, bool keeps)
      : path_(std::move(path)), file_(file), missing_(options.missing_values), keeps_(keeps) {
    for (const CsvFile::Ragged& line : file.ragged()) note(line.row, file.told(line));
  }

  /// Looks for missing values in these columns. All are named in one error.
  void find_missing(const std::vector<std::string>& columns) {
    constexpr std::int64_t kMostTold = 10;
    std::int64_t count = 0;
    std::string places;
    const auto numbers = mapped(columns, [&](const auto& name) { return file_.column(name); });
    for (std::size_t row = 0; row < file_.rows() && !missing_.empty(); ++row) {
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::string_view text = file_.text(row, numbers[i]);
        if (!missing_.contains(text)) continue;
        if (keeps_) {
          if (!is_ragged(row)) note(row, file_.told(row, numbers[i], "is a missing value"));
        } else if (++count <= kMostTold) {
          places += str(count == 1 ? "" : "; ", "line ", file_.line_of(row), ", column '",
                        cut(columns[i]), "': '", cut(text), "'");
        }
      }
    }
    if (count == 0) return;
    if (count > kMostTold) places += str("; and ", count - kMostTold, " more");
    formats::fail_file(
        path_, str("it has ", counted(count, "missing value"), ": ", places,
                   "; fill them or leave these rows out; data.missing_values says what counts as "
                   "missing ([]: nothing)"));
  }

  /// Of a cell that breaks `rule`: "is …".
  void add(std::size_t row, std::size_t column, const std::string& rule) {
    if (!keeps_) file_.refuse(row, column, rule);
    if (!says_nothing(row, column)) note(row, file_.told(row, column, rule));
  }

  /// Whether what is wrong with a cell is found already: it is missing, or its line is ragged.
  [[nodiscard]] bool says_nothing(std::size_t row, std::size_t column) const {
    return keeps_ && (missing_.contains(file_.text(row, column)) || is_ragged(row));
  }

  /// The damaged rows that were found, each with its line of the file.
  [[nodiscard]] DamagedRows take() {
    std::size_t last = 0;
    std::size_t line = file_.line_of(0);
    for (auto& [index, reason] : rows_.reasons) {
      const auto row = static_cast<std::size_t>(index);
      line += file_.lines(std::exchange(last, row), row);
      reason = str("data file '", path_, "': line ", line, ": ", reason);
    }
    std::ranges::sort(rows_.others);
    rows_.reason_of_others =
        str("data file '", path_, "': cells of this row are wrong, too, as of ", kMostRows,
            " others, which are named");
    return std::move(rows_);
  }

 private:
  static constexpr std::size_t kMostRows = 10'000;  // that are told with line and column

  [[nodiscard]] bool is_ragged(std::size_t row) const {
    return std::ranges::binary_search(file_.ragged(), row, std::less<>(), &CsvFile::Ragged::row);
  }

  void note(std::size_t row, const std::string& text) {
    constexpr std::size_t kLongest = 1000;
    const auto index = static_cast<std::int64_t>(row);
    if (const auto known = rows_.reasons.find(index); known != rows_.reasons.end()) {
      std::string& reason = known->second;
      if (reason.size() < kLongest) {
        reason += str("; ", text);
        if (reason.size() >= kLongest) reason += "; ...";
      }
    } else if (rows_.reasons.size() < kMostRows) {
      rows_.reasons.emplace(index, text);
    } else if (rows_.others.empty() || rows_.others.back() != index) {
      rows_.others.push_back(index);
    }
  }

  std::string path_;
  const CsvFile& file_;
  MissingValues missing_;
  bool keeps_;
  DamagedRows rows_;
};

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
                                        const WrongCells& cells,
                                        const std::optional<std::int64_t>& ignored) {
  const std::size_t place = file.column(column);
  const auto no_class = ignored_label(ignored);
  bool is_numeric = true;
  for (std::size_t row = 0; row < file.rows() && is_numeric; ++row) {
    is_numeric = formats::csv_number(file.text(row, place)) || cells.says_nothing(row, place);
  }
  std::map<Decimal, std::string> by_number;
  std::set<std::string_view> texts;
  for (std::size_t row = 0; row < file.rows(); ++row) {
    const std::string_view text = trimmed(file.text(row, place));
    if (text.empty() || is_ignored(text, no_class) || cells.says_nothing(row, place)) continue;
    if (is_numeric) {
      by_number.emplace(*Decimal::of(text), text);
    } else {
      texts.insert(text);
    }
  }
  if (!is_numeric) return {texts.begin(), texts.end()};
  return mapped(by_number, [](const auto& entry) { return entry.second; });
}

// The class of each row, of those with these names; -1 where its label is wrong. Numbers are told
// apart by their values, if all names are numbers, and other texts by their bytes, then without
// blanks at their ends.
at::Tensor labels_of(const CsvFile& file, const std::string& column,
                     const std::vector<std::string>& names,
                     const std::optional<std::int64_t>& ignored, WrongCells& cells) {
  const bool is_numeric = std::ranges::all_of(
      names, [](const std::string& name) { return formats::csv_number(name).has_value(); });
  std::map<Decimal, std::int64_t> by_number;
  std::map<std::string_view, std::int64_t> by_text;
  std::map<std::string_view, std::int64_t> by_trimmed;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto label = static_cast<std::int64_t>(i);
    if (is_numeric) {
      by_number.emplace(*Decimal::of(names[i]), label);
    } else {
      by_text.emplace(names[i], label);
      by_trimmed.emplace(trimmed(names[i]), label);
    }
  }
  const auto label_of = [&](std::string_view text) -> std::int64_t {
    if (is_numeric) {
      const auto number = Decimal::of(text);
      const auto found = number ? by_number.find(*number) : by_number.end();
      return found == by_number.end() ? -1 : found->second;
    }
    if (const auto same = by_text.find(text); same != by_text.end()) return same->second;
    const auto found = by_trimmed.find(trimmed(text));
    return found == by_trimmed.end() ? -1 : found->second;
  };
  const auto no_class = ignored_label(ignored);
  const std::size_t place = file.column(column);
  std::string rule;
  at::Tensor labels = at::empty({static_cast<std::int64_t>(file.rows())}, at::kLong);
  auto* into = labels.data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < file.rows(); ++row) {
    const std::string_view text = file.text(row, place);
    std::int64_t label = label_of(text);
    if (label < 0 && is_ignored(text, no_class)) {
      label = *ignored;
    } else if (label < 0) {
      if (rule.empty()) {
        rule =
            str("is none of the training file's classes: ", shortened(formats::quoted(names), 200));
      }
      const bool is_odd = is_numeric && !formats::csv_number(text);
      cells.add(row, place,
                is_odd                  ? "is no finite number"
                : trimmed(text).empty() ? "is no class"
                                        : rule);
    }
    *into++ = label;
  }
  return labels;
}

// Which columns of a table have numbers that float32 rounds.
class RoundedColumns {
 public:
  // `number` is what a cell says, `taken` what is left of it.
  void note(const CsvFile& file, std::size_t row, std::size_t column, double number, double taken) {
    const bool is_moved = formats::is_moved(number, taken);
    if (!is_moved && std::abs(number) < kExactInDouble) return;
    if (!noted_.empty() && noted_.back() == file.header()[column]) return;
    const std::string_view text = trimmed(file.text(row, column));
    if (formats::is_rough(text)) return;
    if (!is_moved &&
        Decimal::of(text) == Decimal::of(shortest_text(number, std::chars_format::fixed)))
      return;
    noted_.push_back(file.header()[column]);
    if (noted_.size() == 1) {
      first_ = str("line ", file.line_of(row), " has ", cut(text), ", which becomes ",
                   shortest_text(taken, std::chars_format::fixed));
    }
  }

  void warn(const std::string& path) const {
    if (noted_.empty()) return;
    log_warning(str("csv: float32 rounds numbers of '", path, "' in ",
                    noted_.size() == 1 ? "the column " : "the columns ", formats::quoted(noted_),
                    ": ", first_));
  }

 private:
  std::vector<std::string> noted_;
  std::string first_;
};

// Whether float32 certainly keeps a number's digits before the point, or a constant column its one.
bool keeps_whole(double number, const ColumnScale& scale) {
  constexpr double kFloats = 4194304;  // 2^22
  return scale.deviation == 0 ||
         (std::abs(number - scale.mean) < kFloats && std::abs(number) < kExactInDouble);
}

// float32 (rows, columns): by `scales` or, without any, as the file has them. With `fits` `scales`
// gets those of the values themselves first. 0 where a cell is wrong.
at::Tensor values_of_columns(const std::string& path, const CsvFile& file,
                             const std::vector<std::string>& columns, bool fits,
                             std::vector<ColumnScale>& scales, WrongCells& cells,
                             RoundedColumns& rounded) {
  // So many at once stay in a near cache; of a long table it is one.
  constexpr std::size_t kTogether = 64;
  constexpr std::size_t kNumbersTogether = std::size_t{1} << 17;
  const std::size_t most = std::clamp<std::size_t>(kNumbersTogether / file.rows(), 1, kTogether);
  formats::require_memory(
      path, file.rows() * (columns.size() * sizeof(float) + 2 * most * sizeof(double)),
      str("its ", file.rows(), " rows of ", columns.size(), " columns take, as numbers,"));
  const auto width = static_cast<std::int64_t>(columns.size());
  at::Tensor values = at::empty({static_cast<std::int64_t>(file.rows()), width}, at::kFloat);
  const auto read = [&](std::size_t begin) {
    std::vector<std::size_t> places;
    for (std::size_t i = begin; i < std::min(begin + most, columns.size()); ++i) {
      places.push_back(file.column(columns[i]));
    }
    std::vector<double> numbers = file.numbers(places);
    return std::pair(std::move(places), std::move(numbers));
  };
  // A thread, if one can be started, reads the next columns while this one converts those before.
  const auto start = [&](std::size_t begin) {
    return std::async(std::launch::async | std::launch::deferred, read, begin);
  };
  auto next = start(0);
  for (std::size_t begin = 0; begin < columns.size(); begin += most) {
    const auto [places, together] = next.get();
    if (begin + most < columns.size()) next = start(begin + most);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto numbers = std::span(together).subspan(i * file.rows(), file.rows());
      for (std::size_t row = 0; row < numbers.size(); ++row) {
        if (std::isnan(numbers[row])) cells.add(row, places[i], "is no finite number");
      }
      if (fits) scales.push_back(scale_of(numbers));
      const bool is_scaled = !scales.empty();
      const ColumnScale scale = is_scaled ? scales[begin + i] : ColumnScale();
      float* into = values.data_ptr<float>() + begin + i;
      for (std::size_t row = 0; row < numbers.size(); ++row, into += width) {
        *into = static_cast<float>(is_scaled ? scaled(numbers[row], scale) : numbers[row]);
        if (!std::isfinite(*into)) {
          if (!std::isnan(numbers[row])) cells.add(row, places[i], "is too large for float32");
          *into = 0;
          continue;
        }
        if (keeps_whole(numbers[row], scale)) continue;
        rounded.note(file, row, places[i], numbers[row], *into * scale.deviation + scale.mean);
      }
    }
  }
  return values;
}

// The features' columns, after the targets' are found to be right.
std::vector<std::string> check_columns(const std::string& path, const CsvFile& file,
                                       const CsvSetOptions& options) {
  std::set<std::size_t> taken;
  const auto take = [&](const std::string& name) {
    require(taken.insert(file.column(name)).second,
            "csv: data.target and data.features have the column '", cut(name), "' twice");
  };
  require(!options.target.empty(), "csv: data.target is empty, but must name a column of '", path,
          "', which has ", formats::quoted(file.header()));
  require(options.task == CsvTask::regression || options.target.size() == 1,
          "csv: data.target has ", options.target.size(),
          " columns, but classification has classes of one");
  for (const std::string& name : options.target) take(name);
  std::vector<std::string> features = options.features;
  for (std::size_t i = 0; i < file.columns() && options.features.empty(); ++i) {
    const std::string& name = file.header()[i];
    if (!trimmed(name).empty() && !taken.contains(i)) features.push_back(name);
  }
  if (options.features.empty() && trimmed(file.header()[0]).empty()) {
    log_info(str("csv: the first column of '", path,
                 "' has no name: it is taken for an index and left out"));
  }
  require(!features.empty(), "csv: '", path, "' has no column but the target");
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

// For DataSets::notes: which columns of the training file are used, and how.
std::vector<std::string> notes_of(const CsvFile& train, const CsvSetOptions& options,
                                  const Fitted& fitted) {
  // Names that begin or end with blanks are in quotes, so that these are seen.
  const auto some = [](std::vector<std::string> columns) {
    for (std::string& name : columns) {
      if (formats::has_unseen_ends(name)) name = str("'", name, "'");
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
    if (!used.contains(i)) left_out.push_back(trimmed(name).empty() ? "one without a name" : name);
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

// `file`, which lies at `path`, read as `fitted` says; with `fits` that is found by it first.
std::shared_ptr<const Dataset> table_set(const std::string& path, const CsvFile& file, bool fits,
                                         Fitted& fitted, const CsvSetOptions& options,
                                         const DataContext& context) {
  if (fits) {
    fitted.inputs = check_columns(path, file, options);
    fitted.targets = options.target;
  }
  const bool has_targets =
      context.needs_targets || std::ranges::any_of(fitted.targets, [&](const std::string& name) {
        return file.find(name).has_value();
      });
  std::vector<std::string> columns = fitted.inputs;
  if (has_targets) std::ranges::copy(fitted.targets, std::back_inserter(columns));
  WrongCells cells(path, file, options, context.keeps_damaged);
  cells.find_missing(columns);
  if (fits && options.task == CsvTask::classification) {
    const std::string& column = fitted.targets[0];
    fitted.classes = class_names_of(file, column, cells, context.ignored);
    fitted.class_count = std::ssize(fitted.classes);
    if (fitted.classes.empty()) {
      formats::fail_file(
          path, str("no label in column '", cut(column), "' is a class",
                    context.ignored ? str(": ", *context.ignored, " does not count") : ""));
    }
  }
  const bool has_classes = fitted.class_count > 0;
  RoundedColumns rounded;
  std::optional<at::Tensor> targets;
  if (has_targets) {
    targets = has_classes
                  ? labels_of(file, fitted.targets[0], fitted.classes, context.ignored, cells)
                  : values_of_columns(path, file, fitted.targets, fits && options.normalize_targets,
                                      fitted.target_scales, cells, rounded);
  }
  at::Tensor inputs = values_of_columns(path, file, fitted.inputs, fits && options.normalize,
                                        fitted.input_scales, cells, rounded);
  rounded.warn(path);
  const std::vector<std::int64_t> shape{std::ssize(fitted.inputs)};
  return std::make_shared<const TensorSet>(std::move(inputs), std::move(targets),
                                           has_classes
                                               ? class_sample(shape, fitted.class_count)
                                               : value_sample(shape, std::ssize(fitted.targets)),
                                           fitted.classes, cells.take());
}

const keys::Rule<std::string> kSeparator{
    "one byte that is no quote and no line's end", [](const std::string& text) {
      return text.size() == 1 && std::string_view("\"\r\n").find(text) == std::string_view::npos;
    }};

keys::ConfigKeys csv_keys(CsvSetOptions& options) {
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
  DataSets sets;
  if (context.fitted) sets.fitted = *context.fitted;
  bool is_fitted = context.fitted.has_value();
  // Columns and classes come from the first file that can be read. It is another than the training
  // file only for `train check`, which looks at the other files even if that one can't be read.
  const auto read = [&](const std::string& path, const CsvFile& file) {
    Fitted fitted = sets.fitted;
    auto set = table_set(path, file, !is_fitted, fitted, options, context);
    sets.fitted = std::move(fitted);
    is_fitted = true;
    return set;
  };
  if (context.wanted.train || !context.fitted) {
    load_or_tell(context, [&] {
      const CsvFile train = open_csv(options.file, options, context);
      sets.train = read(options.file, train);
      sets.notes = notes_of(train, options, sets.fitted);
    });
  }
  const auto other = [&](bool is_wanted, const std::optional<std::string>& file,
                         std::shared_ptr<const Dataset>& set) {
    load_wanted(context, is_wanted && file, set,
                [&] { return read(*file, open_csv(*file, options, context)); });
  };
  other(context.wanted.validation, options.validation_file, sets.validation);
  other(context.wanted.test, options.test_file, sets.test);
  return sets;
}

DataKind csv_kind() {
  return data_kind<CsvSetOptions>(
      "csv", "tables of text: columns of numbers, and numbers or classes to predict", csv_keys,
      load_csv);
}

}  // namespace lockstep
