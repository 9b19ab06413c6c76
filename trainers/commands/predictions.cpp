#include "trainers/commands/predictions.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/data/sample_text.h"
#include "framework/formats/csv.h"
#include "framework/telemetry/metrics.h"
#include "framework/training/evaluation_mode.h"
#include "framework/training/forward_place.h"
#include "framework/tree/error_place.h"
#include "trainers/commands/command_line.h"
#include "trainers/report/run_table.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// A column's values of each sample.
struct Column {
  std::string name;
  at::Tensor values;  // (samples, values of each)
};

Json number(const at::Tensor& value) {
  if (!value.is_floating_point()) return value.item<std::int64_t>();
  if (value.scalar_type() == at::kDouble) return value.item<double>();
  return shortest_decimal(value.item<float>());
}

// One value, or a list of several.
Json entry_of(const at::Tensor& values, const std::function<Json(const at::Tensor&)>& convert) {
  if (values.numel() == 1) return convert(values[0]);
  return mapped(values.unbind(), convert);
}

// The columns of a row.
struct Fields {
  std::vector<std::string> names;
  std::vector<std::string> values;

  // A column for each value in this one: those of lists and objects are called by their places,
  // from `first` on, and keys.
  void add(const std::string& name, const Json& value, std::size_t first = 0) {
    if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) add(str(name, "_", key), inner);
    } else if (value.is_array()) {
      for (const Json& inner : value) add(str(name, "_", first++), inner);
    } else {
      names.push_back(name);
      values.push_back(report::csv_field(value));
    }
  }
};

Fields fields_of(const Json& row) {
  Fields fields;
  for (const auto& [name, value] : row.items()) fields.add(name, value, name == "top" ? 1 : 0);
  return fields;
}

// The samples' lines as objects.
class PredictionRows {
 public:
  PredictionRows(const Dataset& data, const PredictionOptions& options)
      : classes_(data.type().classes),
        data_(data),
        has_sample_names_(!data.sample_name(0).empty()),
        names_(data.class_names()),
        options_(options) {
    require(names_.empty() || std::ssize(names_) == classes_, "the data set names ", names_.size(),
            " classes and has ", classes_);
    const std::vector<std::string> all = data.columns();
    for (const std::size_t place : columns_with(data, options.with)) {
      columns_.push_back({all[place], place});
    }
  }

  // Of a batch of the samples with these numbers.
  [[nodiscard]] std::vector<Json> of(const at::Tensor& outputs, const at::Tensor& targets,
                                     std::span<const std::int64_t> indices) {
    std::vector<Json> rows;
    for (const std::int64_t index : indices) {
      Json& row = rows.emplace_back(Json{{"index", index}});
      if (has_sample_names_) row["file"] = data_.sample_name(index);
    }
    for (const Column& column : predicted(outputs, targets.size(0))) {
      count_non_finite(column.values, indices);
      add(column, rows);
    }
    if (options_.probabilities || options_.top) add_probabilities(outputs, rows);
    if (data_.has_targets()) add({"target", unscaled(flat(targets))}, rows);
    add_columns(indices, rows);
    return rows;
  }

  /// A warning if there were outputs that are not finite, of which a file has `written`.
  void warn(const char* written) const {
    if (non_finite_ == 0) return;
    const std::string name = data_.sample_name(first_non_finite_);
    log_warning(str("the model's output is not finite for ", non_finite_, " of ",
                    counted(data_.size(), "sample"), ", first for sample ", first_non_finite_,
                    name.empty() ? "" : str(" ('", name, "')"), ": ", written, " stands there"));
  }

 private:
  // Puts the texts of the data's columns before the prediction.
  void add_columns(std::span<const std::int64_t> indices, std::vector<Json>& rows) {
    for (std::size_t i = 0; i < rows.size() && !columns_.empty(); ++i) {
      if (!are_named_) name_columns(rows[i]);
      Json::object_t made;
      // operator[] would look for each of many names among those before.
      for (auto& [name, value] : rows[i].get_ref<Json::object_t&>()) {
        if (name == "prediction") {
          for (const OwnColumn& own : columns_) {
            made.emplace_back(own.name, data_.text(indices[i], own.place));
          }
        }
        made.emplace_back(name, std::move(value));
      }
      rows[i] = std::move(made);
    }
  }

  // A line has no two columns of one name.
  void name_columns(const Json& row) {
    const std::vector<std::string> fields = fields_of(row).names;
    std::set<std::string> taken(fields.begin(), fields.end());
    for (const auto& [name, value] : row.items()) taken.insert(name);
    for (OwnColumn& own : columns_) {
      while (!taken.insert(own.name).second) own.name.insert(0, "own_");
    }
    are_named_ = true;
  }

  // Of outputs (samples, values of each).
  void count_non_finite(const at::Tensor& values, std::span<const std::int64_t> indices) {
    const at::Tensor are_finite = at::isfinite(values).all(1);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (are_finite[static_cast<std::int64_t>(i)].item<bool>()) continue;
      if (non_finite_++ == 0) first_non_finite_ = indices[i];
    }
  }

  // (samples, values of each)
  static at::Tensor flat(const at::Tensor& values) {
    const std::int64_t samples = values.size(0);
    return values.reshape({samples, samples > 0 ? values.numel() / samples : 0});
  }

  [[nodiscard]] std::vector<Column> predicted(const at::Tensor& outputs,
                                              std::int64_t samples) const {
    require(outputs.dim() >= 1 && outputs.size(0) == samples, "the model's outputs (",
            join(outputs.sizes()), ") are not of ", counted(samples, "sample"));
    if (classes_ == 0) return {{"prediction", unscaled(flat(outputs))}};
    require(outputs.dim() >= 2 && outputs.size(-1) == classes_, "the model's outputs (",
            join(outputs.sizes()), ") have no score for each of ", classes_, " classes");
    const at::Tensor classes = at::argmax(outputs, -1, /*keepdim=*/true);
    return {{"prediction", flat(classes)}, {"score", flat(at::gather(outputs, -1, classes))}};
  }

  void add(const Column& column, std::vector<Json>& rows) const {
    const bool is_class = classes_ > 0 && column.name != "score";
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const at::Tensor values = column.values[static_cast<std::int64_t>(i)];
      rows[i][column.name] = entry_of(values, number);
      if (!is_class || names_.empty()) continue;
      rows[i][column.name + "_name"] = entry_of(
          values, [&](const at::Tensor& value) { return name_of(value.item<std::int64_t>()); });
    }
  }

  // Of outputs (samples, classes).
  void add_probabilities(const at::Tensor& outputs, std::vector<Json>& rows) const {
    const at::Tensor scores = flat(outputs);
    require(scores.size(1) == classes_, "the model's outputs (", join(outputs.sizes()),
            ") are of more than one class a sample, which has no one probability");
    const at::Tensor all = at::softmax(scores.to(at::kDouble), 1).contiguous();
    // Equal ones in the order of the classes, and NaN first, as argmax() has it.
    const at::Tensor order =
        std::get<1>(at::sort(scores, /*stable=*/true, 1, /*descending=*/true)).contiguous();
    const double* probability = all.data_ptr<double>();
    const std::int64_t* likeliest = order.data_ptr<std::int64_t>();
    for (Json& row : rows) {
      if (options_.probabilities) row["probability"] = probabilities(probability);
      for (std::int64_t i = 0; i < options_.top.value_or(0); ++i) {
        Json entry{{"class", likeliest[i]}};
        if (!names_.empty()) entry["name"] = name_of(likeliest[i]);
        entry["probability"] = probability[likeliest[i]];
        row["top"].push_back(std::move(entry));
      }
      probability += classes_;
      likeliest += classes_;
    }
  }

  // By the classes' names, or a list.
  [[nodiscard]] Json probabilities(const double* of_classes) const {
    const std::span<const double> all(of_classes, static_cast<std::size_t>(classes_));
    if (names_.empty()) return std::vector<double>(all.begin(), all.end());
    Json::object_t named;
    named.reserve(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) named.emplace_back(names_[i], all[i]);
    return named;
  }

  // Values (samples, values of each) as they were before they were normalized; classes never are.
  [[nodiscard]] at::Tensor unscaled(const at::Tensor& values) const {
    const std::vector<ColumnScale>& scales = options_.target_scales;
    if (classes_ > 0 || scales.empty()) return values;
    require(values.size(1) == std::ssize(scales), "the model's outputs have ", values.size(1),
            " values a sample, and the data ", scales.size());
    return lockstep::unscaled(values, scales).to(values.scalar_type());
  }

  // A target that is no class, such as one that a loss ignores, has no name.
  [[nodiscard]] Json name_of(std::int64_t number) const {
    const bool is_class = number >= 0 && number < std::ssize(names_);
    return is_class ? names_[static_cast<std::size_t>(number)] : "";
  }

  struct OwnColumn {
    std::string name;   // in a line
    std::size_t place;  // in data_.columns()
  };

  std::int64_t classes_;
  const Dataset& data_;
  bool has_sample_names_;
  std::vector<std::string> names_;
  const PredictionOptions& options_;
  std::vector<OwnColumn> columns_;  // that are written
  bool are_named_ = false;          // whether each has a name of its own
  std::int64_t non_finite_ = 0;     // samples with such an output
  std::int64_t first_non_finite_ = 0;
};

// The batch of `indices`, of which those that can't be made are taken out and told.
Batch readable_batch(const Dataset& data, std::vector<std::int64_t>& indices,
                     const std::function<void(const DamagedSample& damaged)>& on_damaged) {
  try {
    return data.batch(indices);
  } catch (const DataError&) {
    if (!on_damaged) throw;
  }
  std::erase_if(indices, [&](const std::int64_t& index) {
    try {
      (void)data.batch(std::span(&index, 1));
      return false;
    } catch (const DataError& error) {
      on_damaged({index, error.what()});
      return true;
    }
  });
  return data.batch(indices);
}

}  // namespace

void check_predictable(const SampleType& sample, const PredictionOptions& options) {
  require(!sample.has_tokens(),
          "the data are tokens, each with the one that follows: ", program_name("sample"),
          " continues a text");
  if (!options.probabilities && !options.top) return;
  require(sample.classes > 0, options.top ? "--top" : "--probabilities",
          ": the model predicts values, which have no probabilities");
  require(!options.top || (*options.top >= 1 && *options.top <= sample.classes),
          "--top: must be from 1 to the ", counted(sample.classes, "class", "classes"),
          " that there are, is ", options.top.value_or(0));
}

std::vector<std::size_t> columns_with(const Dataset& data, const std::vector<std::string>& with) {
  const std::vector<std::string> all = data.columns();
  require(with.empty() || !all.empty(), "--with: the data have no columns",
          data.sample_name(0).empty() ? "" : "; the column file names each sample");
  std::vector<std::size_t> places;
  // Blanks at a name's ends may differ.
  const auto take = [&](const std::string& name) {
    auto found = std::ranges::find(all, name);
    if (found == all.end()) {
      found = std::ranges::find(all, formats::trimmed(name), formats::trimmed);
    }
    require(found != all.end(), "--with: there is no column '", cut(name), "'",
            did_you_mean(name, all), "; there are ", formats::quoted(all));
    const auto place = static_cast<std::size_t>(found - all.begin());
    if (std::ranges::count(places, place) == 0) places.push_back(place);
  };
  for (const std::string& text : with) {
    if (std::ranges::count(all, text) > 0) {
      take(text);
    } else if (text == "*") {
      for (const std::string& name : all) {
        if (!formats::trimmed(name).empty()) take(name);
      }
    } else {
      std::istringstream names(text);
      for (std::string name; std::getline(names, name, ',');) take(name);
    }
  }
  return places;
}

void write_predictions(Model& model, const Dataset& data, const PredictionOptions& options,
                       const std::function<void(std::string_view)>& write) {
  check_predictable(data.type(), options);
  const training::EvaluationMode evaluation(model);
  PredictionRows rows(data, options);
  bool is_first = true;
  for (std::int64_t start = 0; start < data.size(); start += options.batch_size) {
    std::vector<std::int64_t> indices =
        consecutive(start, std::min(options.batch_size, data.size() - start));
    const Batch batch =
        foreign_placed([&] { return data::first_not_made(data, indices); },
                       [&] { return readable_batch(data, indices, options.on_damaged); });
    if (indices.empty()) continue;
    std::string text;
    for (const Json& row : rows.of(run_forward(model, batch.inputs), batch.targets, indices)) {
      if (options.format == PredictionFormat::jsonl) {
        // Names may hold any bytes, JSON only UTF-8.
        text += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
        continue;
      }
      const auto [names, fields] = fields_of(row);
      if (is_first) text += formats::csv_line(names);
      is_first = false;
      text += formats::csv_line(fields);
    }
    write(text);
  }
  rows.warn(options.format == PredictionFormat::jsonl ? "null" : "NaN or inf");
}

}  // namespace lockstep
