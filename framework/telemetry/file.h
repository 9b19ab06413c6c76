#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep {

/// An open file, closed with the object. Every failure throws an Error that names the file and the
/// reason.
class File {
 public:
  /// `flags` as open(2) takes them; a new file gets the permissions that the umask leaves.
  File(const std::filesystem::path& path, int flags);
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  /// Hands all of `text` to the kernel, in one call where it takes that much.
  void write(std::string_view text) const;

  /// Waits until what was written is on the disk.
  void sync() const;

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace lockstep
