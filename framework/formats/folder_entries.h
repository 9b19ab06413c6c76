#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::formats {

/// Throws the DataError that names the folder and says `rule`, which it breaks.
[[noreturn]] void fail_folder(const std::string& folder, const std::string& rule);

struct FolderEntry {
  std::string name;
  std::filesystem::file_type type;  ///< not_found for a link that leads nowhere
  bool is_link = false;
};

/// What is in a folder, links as what they lead to, without names that begin with a dot; sorted by
/// name, byte by byte. DataError, naming the folder, if it is missing, no folder or unreadable.
[[nodiscard]] std::vector<FolderEntry> entries_of(const std::string& folder);

}  // namespace lockstep::formats
