#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("can't read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Damages a file, at its end.
inline void change_last_byte(const std::filesystem::path& path) {
  std::string bytes = read_text(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(path, bytes);
}

/// How many entries a folder has, hidden ones too.
inline std::ptrdiff_t entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

/// Whether a folder has entries whose names begin with a dot, as those of files half written do.
/// One that isn't there has none.
inline bool has_hidden(const std::filesystem::path& folder) {
  std::error_code missing;
  for (std::filesystem::directory_iterator entry(folder, missing), end; !missing && entry != end;
       entry.increment(missing)) {
    if (entry->path().filename().string()[0] == '.') return true;
  }
  return false;
}

}  // namespace lockstep::testing
