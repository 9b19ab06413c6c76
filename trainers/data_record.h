#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/data/data.h"

namespace lockstep {

/// A set of a run's data, as a checkpoint says it.
struct SetRecord {
  std::int64_t size = 0;
  std::string fingerprint{};  ///< Dataset's

  bool operator==(const SetRecord&) const = default;
};

/// What checkpoints say of their run's data.
struct DataRecord {
  Fitted fitted{};
  std::map<std::string, SetRecord> sets{};  ///< as named_sets() has them

  bool operator==(const DataRecord&) const = default;
};

[[nodiscard]] DataRecord record_of(const DataSets& data);

/// Adds the record to what a checkpoint says.
void add_record(const DataRecord& record, CheckpointInfo& info);
/// What the checkpoint in the folder `checkpoint` says. DataError if it does not.
[[nodiscard]] DataRecord data_record(const std::filesystem::path& checkpoint,
                                     const CheckpointInfo& info);

/// How the sets differ by their fingerprints, one entry each: "the training set had 400 samples
/// and has 500".
[[nodiscard]] std::vector<std::string> changes_of_sets(const DataRecord& before,
                                                       const DataRecord& now);

/// What was fitted, as JSON: "inputs" and "targets" (names), "input_scales" and "target_scales"
/// ([mean, deviation] of each), "classes" (names) and "class_count". A name that is not in UTF-8 is
/// the list of its bytes.
[[nodiscard]] std::string fitted_text(const Fitted& fitted);

}  // namespace lockstep
