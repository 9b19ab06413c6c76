#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/programs.h"
#include "tests/support/run_files.h"

namespace lockstep::testing {

using Flags = std::vector<std::string>;
/// The flags of both.
[[nodiscard]] Flags operator+(Flags flags, const Flags& more);

/// --set for each of the keys, which stand apart: "trainer.steps=3 trainer.seed=1".
[[nodiscard]] Flags set(const std::string& keys);

/// The built `train` with `flags`, to be started in a test's own folder.
[[nodiscard]] std::vector<std::string> train_command(const Flags& flags);

/// A config of the repository, as a path.
[[nodiscard]] std::string config_file(const std::string& name);

/// A run's result.json, and the digest of its parameters there.
[[nodiscard]] nlohmann::json result_of(const std::filesystem::path& run);
[[nodiscard]] std::string digest_of(const std::filesystem::path& run);
/// Whether a run has logged a step.
[[nodiscard]] bool has_logged(const std::filesystem::path& run);
/// The names of a JSON object's fields, in their order.
[[nodiscard]] std::vector<std::string> fields(const nlohmann::json& object);

}  // namespace lockstep::testing
