#include "trainers/run/data_record.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "framework/base/range.h"
#include "framework/formats/json_text.h"
#include "framework/tree/error_place.h"
#include "trainers/run/resume.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using formats::json_at, formats::json_field;

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

Json json_of(const std::vector<std::string>& names) {
  return mapped(names, [](const std::string& name) {
    return is_utf8(name) ? Json(name) : Json(std::vector<std::uint8_t>(name.begin(), name.end()));
  });
}

std::vector<std::string> names_in(const Json& list) {
  return mapped(list, [](const Json& name) {
    if (name.is_string()) return name.get<std::string>();
    const auto bytes = name.get<std::vector<std::uint8_t>>();
    return std::string(bytes.begin(), bytes.end());
  });
}

Json json_of(const std::vector<ColumnScale>& scales) {
  return mapped(scales, [](const ColumnScale& scale) { return Json{scale.mean, scale.deviation}; });
}

std::vector<ColumnScale> scales_in(const Json& list) {
  return mapped(list, [](const Json& scale) {
    return ColumnScale{.mean = scale.at(0).get<double>(), .deviation = scale.at(1).get<double>()};
  });
}

Json json_of(const ColumnForm& form) {
  if (!form.date_parts.empty()) return {{"date_parts", json_of(form.date_parts)}};
  if (form.categories.empty()) return nullptr;
  return {{"categories", json_of(form.categories)},
          {"missing", form.has_missing},
          {"other", form.has_other}};
}

ColumnForm form_in(const Json& json) {
  if (json.is_null()) return {};
  if (json.contains("date_parts")) return {.date_parts = names_in(json_at(json, "date_parts"))};
  return {.categories = names_in(json_at(json, "categories")),
          .has_missing = json_field<bool>(json, "missing"),
          .has_other = json_field<bool>(json, "other")};
}

Json json_of(const TensorType& type) {
  return {{"dtype", c10::toString(type.dtype)}, {"shape", type.shape}};
}

at::ScalarType dtype_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (name == c10::toString(type)) return type;
  }
  throw ValueError(str("there is no dtype '", cut(name), "'"));
}

TensorType type_in(const Json& json) {
  const auto shape = json_field<std::vector<std::int64_t>>(json, "shape");
  require(std::ranges::all_of(shape, [](std::int64_t size) { return size >= 0; }),
          "a sample has the shape (", join(shape), ")");
  return {dtype_named(json_field<std::string>(json, "dtype")), shape};
}

Json json_of(const SampleType& sample) {
  Json json{{"input", json_of(sample.input)},
            {"target", json_of(sample.target)},
            {"classes", sample.classes}};
  if (sample.ignored) json["ignored"] = *sample.ignored;
  return json;
}

SampleType sample_in(const Json& json) {
  SampleType sample{.input = type_in(json_at(json, "input")),
                    .target = type_in(json_at(json, "target")),
                    .classes = json_field<std::int64_t>(json, "classes")};
  if (json.contains("ignored")) sample.ignored = json_field<std::int64_t>(json, "ignored");
  return sample;
}

Fitted parse_fitted(const std::string& text) {
  const auto json = formats::parse_json<Json>(text);
  Fitted fitted{.inputs = names_in(json_at(json, "inputs")),
                .input_scales = scales_in(json_at(json, "input_scales")),
                .targets = names_in(json_at(json, "targets")),
                .target_scales = scales_in(json_at(json, "target_scales")),
                .classes = names_in(json_at(json, "classes")),
                .class_count = json_field<std::int64_t>(json, "class_count"),
                .sample = sample_in(json_at(json, "sample"))};
  if (json.contains("forms")) fitted.forms = mapped(json_at(json, "forms"), form_in);
  if (json.contains("input_means")) {
    fitted.input_means = json_field<std::vector<double>>(json, "input_means");
  }
  require<DataError>(fitted.target_scales.empty() || json.contains("unit_figures"),
                     "target_scales without unit_figures are of a Lockstep that is too old");
  check_fitted(fitted);
  return fitted;
}

// ": a.png is damaged now, b.png no longer", as far as there are such pictures.
std::string changes_of_left_out(const std::vector<std::string>& before,
                                const std::vector<std::string>& now) {
  std::vector<std::string> changes;
  const auto tell = [&](const std::vector<std::string>& names,
                        const std::vector<std::string>& others, const char* what) {
    const std::set<std::string> known(others.begin(), others.end());
    const auto rest =
        filtered(names, [&](const std::string& name) { return !known.contains(name); });
    if (rest.empty()) return;
    changes.push_back(str(listed(rest, 5), rest.size() == 1 ? " is " : " are ", what));
  };
  tell(now, before, "damaged now");
  tell(before, now, "no longer among the damaged");
  return changes.empty() ? "" : ": " + join(changes);
}

// The data set whose fingerprint `set` has.
const Dataset* source_of(const Dataset* set) {
  while (const auto* part = dynamic_cast<const Subset*>(set)) set = &part->whole();
  return set;
}

// What `parse` makes of a text of the checkpoint.
template <typename Parse>
auto parsed(const std::filesystem::path& checkpoint, const CheckpointInfo& info,
            const std::string& name, const Parse& parse) {
  const std::string text = recorded_entry(checkpoint, info.texts, name);
  try {
    return parse(text);
  } catch (const std::exception& error) {
    throw DataError(str(checkpoint.string(), " has a damaged '", name, "': ", error.what()));
  }
}

}  // namespace

SetRecords records_of(const DataSets& data) {
  SetRecords records;
  std::map<const Dataset*, std::string> fingerprints;
  for (const auto& [name, set] : named_sets(data)) {
    const Dataset* source = source_of(set.get());
    if (!fingerprints.contains(source)) {
      fingerprints[source] =
          placed([&] { return "the set '" + name + "'"; }, [&] { return set->fingerprint(); });
    }
    records[name] = {
        .size = set->size(), .fingerprint = fingerprints[source], .left_out = set->left_out()};
  }
  return records;
}

std::string sets_text(const SetRecords& sets) {
  Json json = Json::object();
  for (const auto& [name, set] : sets) {
    json[name] = {{"size", set.size}, {"fingerprint", set.fingerprint}};
    if (!set.left_out.empty()) json[name]["left_out"] = json_of(set.left_out);
  }
  return json.dump();
}

SetRecords parse_sets(const std::string& text) {
  const auto json = formats::parse_json<Json>(text);
  SetRecords sets;
  for (const auto& [name, set] : json.items()) {
    sets[name] = {.size = json_field<std::int64_t>(set, "size"),
                  .fingerprint = json_field<std::string>(set, "fingerprint")};
    if (set.contains("left_out")) sets[name].left_out = names_in(json_at(set, "left_out"));
  }
  return sets;
}

void add_record(const DataRecord& record, CheckpointInfo& info) {
  info.texts[kSetsText] = sets_text(record.sets);
  info.texts[kFittedText] = fitted_text(record.fitted);
}

DataRecord data_record(const std::filesystem::path& checkpoint, const CheckpointInfo& info) {
  return {.fitted = parsed(checkpoint, info, kFittedText, parse_fitted),
          .sets = parsed(checkpoint, info, kSetsText, parse_sets)};
}

std::vector<std::string> changes_of_sets(const SetRecords& before, const SetRecords& now) {
  std::vector<std::string> changes;
  for (const auto& [name, words] : {std::pair(kTrainSet, "the training set"),
                                    {kValidationSet, "the validation set"},
                                    {kTestSet, "the test set"}}) {
    const auto old_set = entry_of(before, name);
    const auto new_set = entry_of(now, name);
    const auto samples = [](const auto& set) { return counted(set->size, "sample"); };
    if (old_set && new_set) {
      if (old_set->fingerprint == new_set->fingerprint) continue;
      changes.push_back(old_set->size == new_set->size
                            ? str(words, " of ", samples(old_set), " has other contents")
                            : str(words, " had ", samples(old_set), " and has ", new_set->size));
      changes.back() += changes_of_left_out(old_set->left_out, new_set->left_out);
    } else if (old_set) {
      changes.push_back(str(words, " had ", samples(old_set), " and is not there"));
    } else if (new_set) {
      changes.push_back(str(words, " was not there and has ", samples(new_set)));
    }
  }
  return changes;
}

std::string fitted_text(const Fitted& fitted) {
  Json json{{"inputs", json_of(fitted.inputs)},   {"input_scales", json_of(fitted.input_scales)},
            {"targets", json_of(fitted.targets)}, {"target_scales", json_of(fitted.target_scales)},
            {"classes", json_of(fitted.classes)}, {"class_count", fitted.class_count}};
  if (fitted.sample) json["sample"] = json_of(*fitted.sample);
  if (!fitted.forms.empty()) {
    json["forms"] = mapped(fitted.forms, [](const ColumnForm& form) { return json_of(form); });
  }
  if (!fitted.input_means.empty()) json["input_means"] = fitted.input_means;
  if (!fitted.target_scales.empty()) json["unit_figures"] = true;
  return json.dump();
}

}  // namespace lockstep
