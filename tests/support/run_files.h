#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/event_records.h"
#include "tests/support/files.h"
#include "tests/support/programs.h"

namespace lockstep::testing {

[[nodiscard]] inline nlohmann::json read_json(const std::filesystem::path& file) {
  return nlohmann::json::parse(read_text(file));
}

/// One JSON value a line.
[[nodiscard]] inline std::vector<nlohmann::json> read_json_lines(
    const std::filesystem::path& file) {
  std::vector<nlohmann::json> values;
  for (const std::string& line : lines_of(read_text(file))) {
    values.push_back(nlohmann::json::parse(line));
  }
  return values;
}

/// Whether this field of metrics is a time, a rate or memory, which no two runs have alike, or says
/// that the run has gone on.
[[nodiscard]] inline bool is_measured(const std::string& field) {
  return field == "time" || field == "memory" || field == "parts" || field == "part_of_peak" ||
         field.starts_with("slow_") || field == "resumed_after" || field == "restarts" ||
         field.ends_with("_s");
}

/// The lines of a run's metrics, without what is measured, nor where it went on.
[[nodiscard]] inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines = read_json_lines(run / "metrics.jsonl");
  for (nlohmann::json& line : lines) {
    const nlohmann::json whole = line;
    for (const auto& [name, value] : whole.items()) {
      if (is_measured(name)) line.erase(name);
    }
  }
  return lines;
}

/// What TensorBoard shows of a run, without what is measured, nor where its parts began and ended.
[[nodiscard]] inline ShownValues curves_of(const std::filesystem::path& run) {
  ShownValues curves = shown_in(run);
  std::erase_if(curves, [](const auto& curve) {
    const std::string& tag = curve.first;
    if (tag.starts_with("config/") || tag.starts_with("_hparams_/")) return true;
    constexpr std::string_view kGroup = "train/";
    return tag.starts_with(kGroup) &&
           is_measured(tag.substr(kGroup.size(), tag.find('/', kGroup.size()) - kGroup.size()));
  });
  return curves;
}

}  // namespace lockstep::testing
