#include "tests/train/train_program.h"

#include <filesystem>
#include <system_error>

namespace lockstep::testing {

Flags operator+(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Flags set(const std::string& keys) {
  Flags flags;
  std::string rest = keys;
  while (!rest.empty()) {
    const auto end = rest.find(' ');
    flags = flags + Flags{"--set", rest.substr(0, end)};
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  return flags;
}

std::vector<std::string> train_command(const Flags& flags) {
  std::vector<std::string> command{TRAIN_BINARY};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::string config_file(const std::string& name) {
  return std::string(LOCKSTEP_SOURCE_DIR) + "/configs/" + name;
}

nlohmann::json result_of(const std::filesystem::path& run) {
  return read_json(run / "result.json");
}

std::string digest_of(const std::filesystem::path& run) {
  return result_of(run).at("parameters_sha256");
}

bool has_logged(const std::filesystem::path& run) {
  std::error_code missing;
  return std::filesystem::file_size(run / "metrics.jsonl", missing) > 0 && !missing;
}

std::vector<std::string> fields(const nlohmann::json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return names;
}

}  // namespace lockstep::testing
