#pragma once

#include <cstdlib>
#include <filesystem>

namespace lockstep {

/// Returns Lockstep's folder among a user's files of a kind, as the XDG base directories have it:
/// user_folder("XDG_CONFIG_HOME", ".config") for configs. The folder may not exist. The path is
/// empty if neither the variable nor HOME has an absolute path.
[[nodiscard]] inline std::filesystem::path user_folder(const char* variable, const char* in_home) {
  const std::filesystem::path own = [&]() -> std::filesystem::path {
    const char* const named = std::getenv(variable);
    if (named != nullptr && *named == '/') return named;
    const char* const home = std::getenv("HOME");
    if (home == nullptr || *home != '/') return {};
    return std::filesystem::path(home) / in_home;
  }();
  return own.empty() ? own : own / "lockstep";
}

}  // namespace lockstep
