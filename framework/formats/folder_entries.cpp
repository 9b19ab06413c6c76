#include "framework/formats/folder_entries.h"

#include <algorithm>
#include <system_error>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"

namespace fs = std::filesystem;

namespace lockstep::formats {

void fail_folder(const std::string& folder, const std::string& rule) {
  throw DataError(str("data folder '", folder, "': ", rule));
}

std::vector<FolderEntry> entries_of(const std::string& folder) {
  std::error_code error;
  const auto status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) fail_folder(folder, "there is no such folder");
  if (error) fail_folder(folder, str("it cannot be read: ", text_of_errno(error.value())));
  if (!fs::is_directory(status)) fail_folder(folder, "it is no folder");

  std::vector<FolderEntry> entries;
  fs::directory_iterator next(folder, error);
  while (!error && next != fs::directory_iterator()) {
    const std::string name = next->path().filename().string();
    if (!name.starts_with('.')) {
      // What a link leads to may be missing or unreadable, which shows in the type.
      std::error_code unreadable;
      entries.push_back({name, next->status(unreadable).type(), next->is_symlink(unreadable)});
    }
    next.increment(error);
  }
  if (error) fail_folder(folder, str("it cannot be read: ", text_of_errno(error.value())));
  std::ranges::sort(entries, std::less<>(), &FolderEntry::name);
  return entries;
}

std::vector<std::string> for_each_below(
    const std::string& root,
    const std::function<void(const FolderEntry& entry, const std::string& path)>& use,
    const std::function<bool(const FolderEntry& entry)>& counts_as_file) {
  std::vector<std::string> passed_over;
  const std::function<void(const std::string&)> walk = [&](const std::string& folder) {
    for (const FolderEntry& entry : entries_of(folder.empty() ? root : path_in(root, folder))) {
      const std::string path = path_in(folder, entry.name);
      if (entry.type != fs::file_type::directory || (counts_as_file && counts_as_file(entry))) {
        use(entry, path);
      } else if (entry.is_link) {
        passed_over.push_back(path_in(root, path));
      } else {
        walk(path);
      }
    }
  };
  walk("");
  return passed_over;
}

std::string path_in(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

}  // namespace lockstep::formats
