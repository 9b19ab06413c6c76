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

  /// Whether its name still leads to it: nobody has removed, renamed or replaced it or a folder
  /// above it.
  [[nodiscard]] bool is_in_place() const noexcept;

 private:
  std::filesystem::path name_;
  int descriptor_;
};

/// Makes `path` a file that holds `text`: whoever opens it, even after a crash, finds the old file
/// or the new one, never a part. Throws Error where it can't be written; nothing is left behind
/// then, nor by what kills the process (but see sweep_temporary_files()).
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// The same for a file that does not exist yet; false if it does. Of several processes that write
/// it at once, one gets true.
[[nodiscard]] bool write_new_file(const std::filesystem::path& path, std::string_view text);

/// Removes what these leave of `path` where they were killed and the file system knows no files
/// without names (O_TMPFILE).
void sweep_temporary_files(const std::filesystem::path& path);

}  // namespace lockstep
