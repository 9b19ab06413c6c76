#include "trainers/report/evaluation_tables.h"

#include <string>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/json_text.h"
#include "framework/telemetry/run_folder.h"
#include "trainers/report/run_record.h"

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;
using formats::json_at, formats::json_field;

// "4 Coat", or the number alone.
std::string class_text(std::int64_t number, const std::string& name) {
  return name.empty() ? str(number) : str(number, " ", name);
}

// The class that an entry has as its target or prediction.
std::string class_in(const Json& entry, const std::string& what) {
  if (!entry.contains(what)) return "none";
  return class_text(json_field<std::int64_t>(entry, what),
                    json_field<std::string>(entry, what + "_name", ""));
}

Table confusion_table(const Json& record, const std::string& of) {
  const auto counts = json_field<std::vector<std::vector<std::int64_t>>>(record, "confusion");
  const auto names = json_field<std::vector<std::string>>(record, "class_names", {});
  Table table{.title = "Targets and predictions, " + of,
              .head = {"target"},
              .note =
                  "Each row is a class that samples have, each column what was predicted for "
                  "them; the stronger a colour, the larger the part of its row.",
              .is_confusion = true};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::string text =
        class_text(static_cast<std::int64_t>(i), i < names.size() ? names[i] : "");
    table.head.push_back(text);
    std::vector<std::string>& row = table.rows.emplace_back(std::vector{text});
    for (const std::int64_t count : counts[i]) row.push_back(str(count));
    if (i == 0 && counts[i].size() > counts.size()) table.note += " The last: none, by a NaN.";
  }
  if (!counts.empty() && counts[0].size() > counts.size()) table.head.emplace_back("none");
  return table;
}

Table confused_table(const Json& record, const std::string& of) {
  Table table{"Largest confusions, " + of, {"target", "prediction", "samples"}};
  for (const Json& entry : json_at(record, "confused")) {
    table.rows.push_back({class_in(entry, "target"), class_in(entry, "prediction"),
                          str(json_field<std::int64_t>(entry, "count"))});
  }
  return table;
}

Table worst_table(const Json& record, const std::string& of) {
  Table table{.title = "Worst samples, " + of,
              .head = {"sample", "target", "prediction", "cross entropy"}};
  for (const Json& entry : json_at(record, "worst")) {
    const Json& loss = json_at(entry, "loss");
    table.rows.push_back({json_field<std::string>(entry, "sample"), class_in(entry, "target"),
                          class_in(entry, "prediction"),
                          loss.is_null() ? "not finite" : str(json_field<double>(entry, "loss"))});
    if (entry.contains("picture"))
      table.pictures.push_back(json_field<std::string>(entry, "picture"));
  }
  return table;
}

Table texts_table(const Json& record, const std::string& of) {
  Table table{.title = "Texts, " + of,
              .head = {"beginning", "as the model goes on"},
              .note = "The beginnings are the set's. `train sample` goes on from a checkpoint."};
  for (const Json& entry : json_at(record, "texts")) {
    table.rows.push_back(
        {json_field<std::string>(entry, "prompt"), json_field<std::string>(entry, "text")});
  }
  return table;
}

void add_tables(const Json& record, std::int64_t last_step, std::vector<Table>& tables) {
  const auto step = json_field<std::int64_t>(record, "step");
  if (step > last_step) return;
  const std::string of = str(json_field<std::string>(record, "set"), " set, step ", step);
  if (record.contains("confusion")) tables.push_back(confusion_table(record, of));
  if (record.contains("confused")) tables.push_back(confused_table(record, of));
  if (record.contains("worst")) tables.push_back(worst_table(record, of));
  if (record.contains("texts")) tables.push_back(texts_table(record, of));
  if (record.contains("no_texts")) {
    tables.push_back(
        {"Texts, " + of, {"none, since"}, {{json_field<std::string>(record, "no_texts")}}});
  }
}

}  // namespace

std::vector<Table> evaluation_tables(const std::filesystem::path& run, std::int64_t last_step) {
  std::vector<Table> tables;
  for (const char* name : kEvaluationFiles) {
    const std::filesystem::path file = run / name;
    if (!formats::is_there(file)) continue;
    const Json record = json_object_in(file);
    try {
      add_tables(record, last_step, tables);
    } catch (const DataError& error) {
      throw DataError(str(file.string(), " is damaged: ", error.what()));
    }
  }
  return tables;
}

}  // namespace lockstep::report
