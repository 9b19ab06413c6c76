#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/data/data.h"

namespace lockstep {

/// A set of a run's data, as a checkpoint says it.
struct SetRecord {
  std::int64_t size = 0;
  std::string fingerprint{};            ///< Dataset's
  std::vector<std::string> left_out{};  ///< Dataset's

  bool operator==(const SetRecord&) const = default;
};

/// Those of named_sets(), by name.
using SetRecords = std::map<std::string, SetRecord>;

/// What checkpoints say of their run's data.
struct DataRecord {
  Fitted fitted{};
  SetRecords sets{};

  bool operator==(const DataRecord&) const = default;
};

/// Takes the fingerprints, one of each source: a folder's files are all looked at. Where they are
/// many and far away that takes minutes, so `train` does it once for a run, before replicas start
/// that would wait for each other meanwhile.
[[nodiscard]] SetRecords records_of(const DataSets& data);

/// As JSON, and back. Throws a std::exception for a text that is none of these.
[[nodiscard]] std::string sets_text(const SetRecords& sets);
[[nodiscard]] SetRecords parse_sets(const std::string& text);

/// What a map, such as one of CheckpointInfo's, says of `name`, if it does.
template <typename Map>
[[nodiscard]] std::optional<typename Map::mapped_type> entry_of(const Map& map,
                                                                const std::string& name) {
  const auto found = map.find(name);
  return found == map.end() ? std::nullopt : std::optional(found->second);
}
/// The same of the checkpoint in the folder `checkpoint`. DataError without it: another program has
/// written the checkpoint.
template <typename Map>
[[nodiscard]] typename Map::mapped_type recorded_entry(const std::filesystem::path& checkpoint,
                                                       const Map& map, const std::string& name) {
  if (auto entry = entry_of(map, name)) return *std::move(entry);
  throw DataError(str(checkpoint.string(), " is no checkpoint of train: it has no '", name, "'"));
}

/// Adds the record to what a checkpoint says.
void add_record(const DataRecord& record, CheckpointInfo& info);
/// What the checkpoint in the folder `checkpoint` says. DataError if it does not.
[[nodiscard]] DataRecord data_record(const std::filesystem::path& checkpoint,
                                     const CheckpointInfo& info);

/// How the sets differ by their fingerprints, one entry each: "the training set had 400 samples
/// and has 399: cat/1.png is damaged now".
[[nodiscard]] std::vector<std::string> changes_of_sets(const SetRecords& before,
                                                       const SetRecords& now);

/// What was fitted, as JSON: "inputs" and "targets" (names), "input_scales" and "target_scales"
/// ([mean, deviation] of each), "classes" (names), "class_count" and "sample" ("input" and
/// "target", each with "dtype" and "shape", "classes", and "ignored" where some targets are). Where
/// some columns are no numbers also "forms", of each input column: null, {"categories": names,
/// "missing": whether one more is for missing values, "other": … for other texts}, or
/// {"date_parts": names}. "input_means" (of each number) where means alone are needed, and
/// "unit_figures" (true) where there are target_scales. A name that is not in UTF-8 is the list of
/// its bytes.
[[nodiscard]] std::string fitted_text(const Fitted& fitted);

}  // namespace lockstep
