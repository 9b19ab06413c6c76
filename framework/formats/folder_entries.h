#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::formats {

struct FolderEntry {
  std::string name;
  std::filesystem::file_type type;  ///< not_found for a link that leads nowhere
  bool is_link = false;
};

/// What is in a folder, links as what they lead to, without names that begin with a dot; sorted by
/// name, byte by byte. DataError, naming the folder, if it is missing, no folder or unreadable.
[[nodiscard]] std::vector<FolderEntry> entries_of(const std::string& folder);

}  // namespace lockstep::formats
