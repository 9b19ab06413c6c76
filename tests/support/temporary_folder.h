#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"

namespace lockstep::testing {

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("can't write " + path.string());
}

/// A new folder that only this user can open. It goes away with the object.
class TemporaryFolder : private NonCopyable {
 public:
  explicit TemporaryFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "lockstep-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error("cannot make the temporary folder " + name + ": " + std::strerror(errno));
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string path(const std::string& name) const { return (path_ / name).string(); }

  /// Writes a file, in folders that are made for it, and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    write_text(path_ / name, bytes);
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::testing
