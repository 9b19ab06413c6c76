#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep {

/// An open file, closed with the object. Every failure throws an Error that names the file and the
/// reason.
class File {
 public:
  /// `flags` as open(2) takes them; a new file gets the permissions that the umask leaves. Messages
  /// call it `name`, which is the path if it is left out.
  File(const std::filesystem::path& path, int flags, std::filesystem::path name = {});
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  /// Hands all of `text` to the kernel, in one call where it takes that much.
  void write(std::string_view text) const;

  /// Waits until what was written is on the disk.
  void sync() const;

  /// Whether its name still leads to it: nobody has removed, renamed or
  /// replaced it or a folder above it.
  [[nodiscard]] bool is_in_place() const noexcept;

 private:
  std::filesystem::path name_;
  int descriptor_;
};

}  // namespace lockstep
