#pragma once

#include <filesystem>
#include <string>

namespace lockstep::data {

/// Whether anything is at `path`, readable or not: a reader says what is wrong with it.
[[nodiscard]] bool is_there(const std::filesystem::path& path);

/// Advice on the files of sources that take any: configs/ names some that a machine may lack.
inline constexpr const char* kSeeConfigs =
    "; the head of a config in configs/ says where its data come from";

/// DataError if nothing is at `path`: which source misses it, and `advice` on how to get or make
/// it.
void require_there(const std::string& source, const std::filesystem::path& path,
                   const std::string& advice);

}  // namespace lockstep::data
