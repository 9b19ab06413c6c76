#pragma once

#include <filesystem>
#include <string>
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

/// The lines of a run's metrics, without times, rates and memory.
[[nodiscard]] inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines = read_json_lines(run / "metrics.jsonl");
  for (nlohmann::json& line : lines) {
    std::vector<std::string> names{"time", "memory", "parts", "part_of_peak"};
    for (const auto& [name, value] : line.items()) {
      if (name.ends_with("_s")) names.push_back(name);
    }
    for (const std::string& name : names) line.erase(name);
  }
  return lines;
}

/// What TensorBoard shows of a run, without times and rates, nor where its parts began and ended.
[[nodiscard]] inline ShownValues curves_of(const std::filesystem::path& run) {
  ShownValues curves = shown_in(run);
  for (const char* const tag : {"train/elapsed_s", "train/samples_per_s", "config/text_summary",
                                "_hparams_/session_start_info", "_hparams_/session_end_info"}) {
    curves.erase(tag);
  }
  return curves;
}

}  // namespace lockstep::testing
