#include "framework/data/csv.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/data/csv_cells.h"
#include "framework/data/csv_columns.h"
#include "framework/data/csv_dates.h"
#include "framework/data/csv_names.h"
#include "framework/data/csv_numbers.h"
#include "framework/data/tensor_set.h"
#include "framework/formats/csv.h"
#include "framework/formats/data_file.h"

namespace lockstep {
namespace {

using formats::CsvFile;
using CsvTask = CsvSetOptions::Task;
using formats::trimmed;

std::shared_ptr<const CsvFile> open_csv(const std::string& path, const CsvSetOptions& options,
                                        const DataContext& context) {
  data::require_there("csv", path,
                      str("it must be a table of text whose first line names the columns, as "
                          "spreadsheets and pandas' DataFrame.to_csv(index=False) write it",
                          data::kSeeConfigs));
  const formats::CsvOptions form{.separator = options.separator[0],
                                 .keeps_ragged = context.keeps_damaged};
  auto file = std::make_shared<const CsvFile>(path, form);
  if (file->rows() == 0) {
    formats::fail_file(path, str("it has only its header, and no rows",
                                 context.fitted ? str(": its first line must name the columns, ",
                                                      formats::quoted(context.fitted->inputs),
                                                      " among them, and rows follow")
                                                : ""));
  }
  return file;
}

using Names = std::vector<std::string>;

std::string yaml_names(const Names& names) {
  return str("[", formats::quoted(names), "]");
}

// The names of the numbers among the inputs: "age", "built's year".
Names number_names(const Fitted& fitted) {
  Names names;
  for (std::size_t i = 0; i < fitted.inputs.size(); ++i) {
    const ColumnForm form = fitted.form(i);
    for (const std::string& part : form.date_parts) {
      names.push_back(str(fitted.inputs[i], "'s ", part));
    }
    if (form == ColumnForm()) names.push_back(fitted.inputs[i]);
  }
  return names;
}

// ValueError unless an option asks for what the model was trained with.
void check_option(bool is_same, const char* key, const std::string& asked,
                  const std::string& trained) {
  require(is_same, "csv: data.", key, " is ", shortened(asked, 1000),
          ", but the model was trained with ", shortened(trained, 1000));
}

// The input columns whose form has this list.
Names inputs_with(const Fitted& fitted, Names ColumnForm::*list) {
  Names names;
  for (std::size_t i = 0; i < fitted.forms.size(); ++i) {
    if (!(fitted.forms[i].*list).empty()) names.push_back(fitted.inputs[i]);
  }
  return names;
}

// The same of how columns become inputs.
void check_same_forms(const CsvSetOptions& options, const Fitted& fitted) {
  const auto check_names = [](const char* key, Names asked, Names trained) {
    std::ranges::sort(asked);
    std::ranges::sort(trained);
    check_option(asked == trained, key, yaml_names(asked), yaml_names(trained));
  };
  const Names categories = inputs_with(fitted, &ColumnForm::categories);
  if (!options.finds_categories) check_names("categories", options.categories, categories);
  const Names dates = inputs_with(fitted, &ColumnForm::date_parts);
  check_names("dates", options.dates, dates);
  for (const ColumnForm& form : fitted.forms) {
    const Names& parts = form.date_parts;
    check_option(parts.empty() || parts == options.date_parts, "date_parts",
                 yaml_names(options.date_parts), yaml_names(parts));
    const auto word = [](bool has_other) { return has_other ? "other" : "error"; };
    const bool wants_other = options.unseen == CsvUnseen::other;
    check_option(form.categories.empty() || wants_other == form.has_other, "unseen",
                 word(wants_other), word(form.has_other));
  }
  const bool has_means = !fitted.input_scales.empty() || !fitted.input_means.empty();
  require(options.missing != CsvMissing::mean || has_means || number_names(fitted).empty(),
          "csv: data.missing is mean, but the model was trained with neither that nor "
          "data.normalize, and so has no means");
}

// ValueError unless the options ask for what was fitted.
void check_same(const CsvSetOptions& options, const Fitted& fitted) {
  check_option(options.target == fitted.targets, "target", yaml_names(options.target),
               yaml_names(fitted.targets));
  const auto is_ignored = [&](const std::string& name) {
    return std::ranges::find(options.ignore, name) != options.ignore.end();
  };
  const Names features = filtered(options.features, std::not_fn(is_ignored));
  check_option(options.features.empty() || features == fitted.inputs, "features",
               yaml_names(features), yaml_names(fitted.inputs));
  const Names ignored = filtered(fitted.inputs, is_ignored);
  require(ignored.empty(), "csv: data.ignore has ", yaml_names(ignored),
          ", which are inputs of the model");
  const bool has_classes = fitted.class_count > 0;
  const auto task = [](bool classes) { return classes ? "classification" : "regression"; };
  const bool wants_classes = options.task == CsvTask::classification;
  check_option(wants_classes == has_classes, "task", task(wants_classes), task(has_classes));
  const auto check_flag = [&](const char* key, bool asked, const std::vector<ColumnScale>& scales) {
    check_option(asked == !scales.empty(), key, asked ? "true" : "false", asked ? "false" : "true");
  };
  // Categories are as they are.
  if (!number_names(fitted).empty()) {
    check_flag("normalize", options.normalize, fitted.input_scales);
  }
  check_same_forms(options, fitted);
  if (has_classes) return;
  check_flag("normalize_targets", options.normalize_targets, fitted.target_scales);
}

// "these are 24 numbers: when (year, month), city (5 categories, missing)".
std::string forms_note(const Fitted& fitted) {
  Names texts;
  for (std::size_t i = 0; i < fitted.forms.size(); ++i) {
    const auto& [categories, has_missing, has_other, parts] = fitted.forms[i];
    if (!parts.empty()) texts.push_back(str(fitted.inputs[i], " (", join(parts), ")"));
    if (categories.empty()) continue;
    texts.push_back(str(fitted.inputs[i], " (",
                        counted(std::ssize(categories), "category", "categories"),
                        has_missing ? ", missing" : "", has_other ? ", other" : "", ")"));
  }
  return str("these are ", sum_of(fitted.forms, &ColumnForm::inputs),
             " numbers: ", shortened(listed(texts, 10), 400));
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
  const Names numbers = number_names(fitted);
  for (std::size_t i = 0; i < fitted.input_scales.size(); ++i) {
    if (fitted.input_scales[i].deviation == 0) constant.push_back(numbers[i]);
  }
  const bool has_values = fitted.class_count == 0;
  const std::string scaled = "normalized to mean 0 and deviation 1 of the training set";
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
  Names notes{str("columns: ", count(fitted.inputs, "input"), " (", some(fitted.inputs), "), ",
                  count(fitted.targets, "target"), " (", some(fitted.targets), "), ",
                  left_out.empty() ? "none left out"
                                   : str(left_out.size(), " left out (", some(left_out), ")"))};
  if (!fitted.forms.empty()) notes.push_back(forms_note(fitted));
  notes.push_back(scaling);
  return notes;
}

// A table for predictions: rows stay that a training leaves out.
class PredictedTable final : public TensorSet {
 public:
  // `complete` are those that it takes.
  PredictedTable(const at::Tensor& inputs, const at::Tensor& targets, SampleType type,
                 std::vector<std::string> names, DamagedRows damaged, at::Tensor complete)
      : TensorSet(inputs, targets, std::move(type), std::move(names), std::move(damaged)),
        inputs_(inputs),
        targets_(targets),
        complete_(std::move(complete)) {}

  // That of a training, so that it is known to be the same set.
  [[nodiscard]] std::string fingerprint() const override {
    return TensorSet(inputs_.index_select(0, complete_), targets_.index_select(0, complete_),
                     type(), class_names())
        .fingerprint();
  }

 private:
  at::Tensor inputs_, targets_, complete_;
};

// Of the table's tensors, with all of its rows, those that are in its set.
std::shared_ptr<const Dataset> set_of(data::TableCells& cells, at::Tensor inputs,
                                      std::optional<at::Tensor> targets, const SampleType& type,
                                      const std::vector<std::string>& names) {
  if (const auto kept = cells.kept(); !kept.empty()) {
    const at::Tensor rows = at::tensor(kept);
    inputs = inputs.index_select(0, rows);
    if (targets) targets = targets->index_select(0, rows);
  }
  const auto complete = cells.complete();
  std::shared_ptr<TensorSet> set;
  if (complete.empty() || !targets) {
    set = std::make_shared<TensorSet>(std::move(inputs), std::move(targets), type, names,
                                      cells.take());
  } else {
    set = std::make_shared<PredictedTable>(inputs, *targets, type, names, cells.take(),
                                           at::tensor(complete));
  }
  const auto first = static_cast<std::int64_t>(cells.file().line_of(0));
  set->locate([path = cells.path(), first, lines = cells.lines()](std::int64_t index) {
    return str("line ", lines.size() > 0 ? lines[index] : first + index, " of '", path, "'");
  });
  return set;
}

// `file`, which lies at `path`, read as `fitted` says; with `fits` that is found by it first, in a
// training file without the samples that are taken for validation.
std::shared_ptr<const Dataset> table_set(const std::string& path, const CsvFile& file, bool fits,
                                         bool splits, Fitted& fitted, const CsvSetOptions& options,
                                         const DataContext& context) {
  if (fits) {
    auto [inputs, targets] = data::columns_of(path, file, options);
    fitted.inputs = std::move(inputs);
    fitted.targets = std::move(targets);
  }
  const bool has_targets =
      context.needs_targets || std::ranges::any_of(fitted.targets, [&](const std::string& name) {
        return file.find(name).has_value();
      });
  const data::NumberForm form(options);
  data::TableCells cells(path, file, options, context);
  if (fits) data::check_header(cells, {fitted.inputs, fitted.targets});
  cells.find_missing(fitted.inputs, has_targets ? fitted.targets : std::vector<std::string>());
  if (fits && splits) {
    const auto kept = std::ssize(cells.kept());
    const auto rows = static_cast<std::int64_t>(cells.rows());
    cells.hold_out(data::split_rows(kept > 0 ? kept : rows, context).validation);
  }
  if (fits && options.task == CsvTask::classification) {
    const std::string& column = fitted.targets[0];
    fitted.classes = data::names_of(
        cells, file.column(column), [](std::size_t) { return true; }, context.ignored);
    fitted.class_count = std::ssize(fitted.classes);
    data::warn_of_alike(cells, column, "labels", fitted.classes);
    if (fitted.classes.empty()) {
      formats::fail_file(
          path, str("no label in column '", cut(column), "' is a class",
                    context.ignored ? str(": ", *context.ignored, " does not count") : ""));
    }
  } else if (fits) {
    for (const std::string& target : fitted.targets) {
      data::check_target_numbers(cells, form, target);
    }
  }
  if (fits) fitted.forms = data::forms_of(cells, form, fitted.inputs, options);
  const bool has_classes = fitted.class_count > 0;
  data::RoundedColumns rounded(cells, form);
  std::optional<at::Tensor> targets;
  if (has_targets) {
    targets = has_classes
                  ? data::labels_of(cells, fitted.targets[0], fitted.classes, context.ignored)
                  : data::values_of(cells, form, fits, fitted, options, rounded);
  }
  at::Tensor inputs = data::inputs_of(cells, form, fits, fitted, options, rounded);
  cells.refuse_wrong_columns();
  rounded.warn();
  const std::vector<std::int64_t> shape{inputs.size(1)};
  return set_of(cells, std::move(inputs), std::move(targets),
                has_classes ? class_sample(shape, fitted.class_count)
                            : value_sample(shape, std::ssize(fitted.targets)),
                fitted.classes);
}

// A table's rows as samples, with all that the file says of them.
class WithColumns final : public Dataset {
 public:
  WithColumns(std::shared_ptr<const Dataset> rows, std::shared_ptr<const CsvFile> file)
      : rows_(std::move(rows)), file_(std::move(file)) {
    require(rows_->size() == static_cast<std::int64_t>(file_->rows()), "csv: a table of ",
            file_->rows(), " rows has ", rows_->size(), " samples, whose columns are not known");
  }

  [[nodiscard]] std::int64_t size() const override { return rows_->size(); }
  [[nodiscard]] SampleType type() const override { return rows_->type(); }
  [[nodiscard]] std::vector<std::string> class_names() const override {
    return rows_->class_names();
  }
  [[nodiscard]] bool has_targets() const override { return rows_->has_targets(); }
  [[nodiscard]] std::optional<std::int64_t> label(std::int64_t index) const override {
    return rows_->label(index);
  }
  [[nodiscard]] std::string fingerprint() const override { return rows_->fingerprint(); }
  [[nodiscard]] std::vector<std::string> columns() const override { return file_->header(); }
  [[nodiscard]] std::string origin(std::int64_t index) const override {
    return rows_->origin(index);
  }
  [[nodiscard]] std::string text(std::int64_t index, std::size_t column) const override {
    return std::string(file_->text(static_cast<std::size_t>(index), column));
  }

 private:
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices,
                             std::int64_t epoch) const override {
    return rows_->batch(indices, epoch);
  }

  std::shared_ptr<const Dataset> rows_;
  std::shared_ptr<const CsvFile> file_;
};

const keys::Rule<std::string> kSeparator{
    "one byte that is no quote and no line's end", [](const std::string& text) {
      return text.size() == 1 && std::string_view("\"\r\n").find(text) == std::string_view::npos;
    }};

const keys::Rule<std::string> kDecimal{
    "one byte that is no part of a number",
    [](const std::string& text) {
      return text.size() == 1 &&
             std::string_view("0123456789+-eE \t\"\r\n").find(text) == std::string_view::npos;
    },
    {",", "."}};

const keys::Rule<std::string> kThousands{"one to four bytes that are no part of a number",
                                         [](const std::string& text) {
                                           return !text.empty() && text.size() <= 4 &&
                                                  text.find_first_of("0123456789+-eE\"\r\n") ==
                                                      std::string::npos;
                                         },
                                         {",", " ", "'"}};

const keys::Rule<std::string> kDatePart{str("one of ", join(data::date_parts())),
                                        [](const std::string& part) {
                                          const Names parts = data::date_parts();
                                          return std::ranges::find(parts, part) != parts.end();
                                        },
                                        data::date_parts()};

const keys::Rule<std::string> kDateFormat{
    str(data::kIsoDates, ", or strptime's conversions, such as %d.%m.%Y"),
    [](const std::string& format) {
      return format == data::kIsoDates || format.find('%') != std::string::npos;
    },
    {data::kIsoDates, "%d.%m.%Y"}};

// A list, in whose place a word may stand: `set` says whether it does. Without `is_word` the word
// is another spelling of what `set` makes of the list.
keys::Value list_or_word(keys::Value list, const std::string& word,
                         const std::function<void(bool is_word)>& set,
                         const std::function<bool()>& is_word = {}) {
  list.words += str(", or ", word);
  list.read = [word, set, read = list.read](const keys::YamlNode& node,
                                            const keys::Report& report) {
    const bool is_given = node.kind == keys::YamlNode::Kind::scalar && node.text == word;
    set(is_given);
    if (!is_given) read(node, report);
  };
  if (!is_word) return list;
  list.print = [word, is_word, print = list.print] {
    return is_word() ? keys::yaml_text(word) : print();
  };
  list.samples = [word, samples = list.samples] {
    keys::Samples all = samples();
    all.good.push_back(keys::yaml_text(word));
    return all;
  };
  return list;
}

// ValueError for options that break a rule.
void check_rules(const CsvSetOptions& options) {
  require(kSeparator.holds(options.separator), "csv: data.separator is '", options.separator,
          "', but must be ", kSeparator.text);
  keys::check("csv: data.decimal", options.decimal, kDecimal);
  keys::check("csv: data.thousands", options.thousands, kThousands);
  require(options.thousands != options.decimal, "csv: data.thousands and data.decimal are '",
          options.decimal, "', but must differ");
  keys::check("csv: data.date_format", options.date_format, kDateFormat);
  for (const std::string& part : options.date_parts) {
    keys::check("csv: data.date_parts", part, kDatePart);
  }
  require(options.dates.empty() || !options.date_parts.empty(),
          "csv: data.date_parts is empty, but data.dates are to become numbers");
}

keys::ConfigKeys csv_keys(CsvSetOptions& options) {
  const keys::Rule<std::string> column = keys::of_length("a column's name", 1000);
  const auto targets_problem = [&options] {
    return options.normalize_targets && options.task == CsvTask::classification
               ? "classes have no mean: only for data.task regression"
               : "";
  };
  const auto thousands_problem = [&options] {
    return options.thousands == options.decimal ? "must be another than data.decimal" : "";
  };
  const auto parts_problem = [&options] {
    return options.date_parts.empty() && !options.dates.empty() ? "must name one at least" : "";
  };
  const auto all_features = [&options](bool is_word) {
    if (is_word) options.features.clear();
  };
  return {
      file_key("file", options.file, "the training set: a table whose first line names columns"),
      file_key("validation_file", options.validation_file, "the validation set, with its columns"),
      file_key("test_file", options.test_file, "the test set, with its columns"),
      {"target",
       keys::text_or_list(options.target, column),
       "the column that is predicted, or several",
       {.required = options.target.empty()}},
      {"features", list_or_word(keys::list(options.features, column), "*", all_features),
       "the columns that are inputs; [] or \"*\": all but the target"},
      {"ignore", keys::list(options.ignore, column),
       "columns that are neither input nor target, such as a row's name or number"},
      {"categories",
       list_or_word(
           keys::list(options.categories, column), "auto",
           [&options](bool is_word) { options.finds_categories = is_word; },
           [&options] { return options.finds_categories; }),
       "columns whose different texts each become an input, 1 or 0; auto: all columns of text"},
      {"unseen", keys::one_of(options.unseen, {"error", "other"}),
       "a category that the training set does not have is an error, or has an input of its own"},
      {"dates", keys::list(options.dates, column), "columns of dates, which become numbers"},
      {"date_parts",
       keys::list(options.date_parts, kDatePart),
       "the numbers that are made of each date; days are those since 1970",
       {.problem = parts_problem, .others = {"dates"}}},
      {"date_format", keys::text(options.date_format, kDateFormat),
       "how dates are written: as in ISO 8601 (2024-03-01T12:30), or as strptime reads them"},
      {"separator", keys::text(options.separator, kSeparator), "what stands between two fields"},
      {"decimal", keys::text(options.decimal, kDecimal), "what stands before a number's fraction"},
      {"thousands",
       keys::text_or_null(options.thousands, kThousands),
       "what stands between a number's groups of digits, as in 1,234,567",
       {.problem = thousands_problem, .others = {"decimal"}}},
      {"task", keys::one_of(options.task, {"regression", "classification"}),
       "whether the target is a number or the name of a class"},
      {"missing_values",
       keys::list(options.missing_values,
                  {"at most 100 bytes", [](const auto& text) { return text.size() <= 100; }}),
       "fields that say that a value is missing; []: none is missing"},
      {"missing", keys::one_of(options.missing, {"error", "drop", "mean"}),
       "drop: rows with such are left out; mean: inputs get the training set's mean, or a "
       "category"},
      {"normalize", keys::flag(options.normalize),
       "give inputs mean 0 and deviation 1, by the training set"},
      {"normalize_targets",
       keys::flag(options.normalize_targets),
       "the same for targets that are numbers; losses and metrics stay in the file's unit",
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
  check_rules(options);
  if (context.fitted) check_same(options, *context.fitted);
  DataSets sets;
  if (context.fitted) sets.fitted = *context.fitted;
  bool is_fitted = context.fitted.has_value();
  // Columns and classes come from the first file that can be read. It is another than the training
  // file only for `train check`, which looks at the other files even if that one can't be read.
  const auto read = [&](const std::string& path, const std::shared_ptr<const CsvFile>& file,
                        bool splits) {
    Fitted fitted = sets.fitted;
    auto set = table_set(path, *file, !is_fitted, splits, fitted, options, context);
    sets.fitted = std::move(fitted);
    is_fitted = true;
    return context.keeps_columns ? std::make_shared<const WithColumns>(std::move(set), file) : set;
  };
  if (context.wanted.train || !context.fitted) {
    load_or_tell(context, [&] {
      const auto train = open_csv(options.file, options, context);
      sets.train = read(options.file, train, context.validation > 0 && !options.validation_file);
      sets.notes = notes_of(*train, options, sets.fitted);
    });
  }
  const auto other = [&](bool is_wanted, const std::optional<std::string>& file,
                         std::shared_ptr<const Dataset>& set) {
    load_wanted(context, is_wanted && file, set,
                [&] { return read(*file, open_csv(*file, options, context), false); });
  };
  other(context.wanted.validation, options.validation_file, sets.validation);
  other(context.wanted.test, options.test_file, sets.test);
  return sets;
}

DataKind csv_kind() {
  DataKind kind = data_kind<CsvSetOptions>(
      "csv", "tables of text: numbers, categories and dates, and numbers or classes to predict",
      csv_keys, load_csv);
  kind.sample = "row";
  kind.take_path = [](keys::Picked& picked, const std::string& path) {
    picked.all.of<CsvSetOptions>(picked.name).test_file = path;
  };
  return kind;
}

}  // namespace lockstep
