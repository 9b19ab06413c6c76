#pragma once

#include <filesystem>
#include <functional>
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

/// Calls `use` for all entries of `root` and the folders below it, in this order, with their paths
/// in `root`; of a folder that `counts_as_file` for itself alone. Links to folders are passed over,
/// since they may lead back: returns their paths.
std::vector<std::string> for_each_below(
    const std::string& root,
    const std::function<void(const FolderEntry& entry, const std::string& path)>& use,
    const std::function<bool(const FolderEntry& entry)>& counts_as_file = {});

/// The path of `name` in `folder`.
[[nodiscard]] std::string path_in(const std::string& folder, const std::string& name);

}  // namespace lockstep::formats
