#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"

namespace lockstep {

/// All bytes of a file. They stay while a copy of `owner` is there. Any thread.
struct FileBytes {
  std::span<const std::uint8_t> bytes{};
  std::shared_ptr<const void> owner{};

  [[nodiscard]] static FileBytes of(std::vector<std::uint8_t> bytes);
};

/// An open file, closed with the object. Every failure throws an Error that names the file and the
/// reason.
class File : private NonCopyable {
 public:
  /// Opens a file with `flags` as open(2) takes them. A new file gets the permissions of `mode`
  /// that the umask leaves. Messages call the file `name`; the default is the path. Without
  /// O_DIRECTORY, a file that is not regular is refused at once (see base/open_file.h).
  File(const std::filesystem::path& path, int flags, std::filesystem::path name = {},
       unsigned mode = 0666);
  /// Takes an open file. Messages call it `name`; failures are errors of this kind.
  File(Descriptor opened, std::filesystem::path name, ErrorKind failure = ErrorKind::error) noexcept
      : name_(std::move(name)), descriptor_(std::move(opened)), failure_(failure) {}

  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

  /// Hands all of `text` to the kernel, in one call where it takes that much.
  void write(std::string_view text) const;

  [[nodiscard]] std::uint64_t size() const;

  /// Reads the bytes from `offset` on, as many as `to` has. Throws Error if the file ends before.
  void read(std::uint64_t offset, Bytes to) const;
  /// The same as far as the file reaches. Returns the number of bytes read.
  [[nodiscard]] std::size_t read_some(std::uint64_t offset, Bytes to) const;

  /// Returns the whole file: mapped, or in memory if it is small, since a process may have only so
  /// many maps (65530 by Linux's default). Nobody may make the file shorter while it is mapped:
  /// reading beyond the new end ends the process (SIGBUS).
  [[nodiscard]] FileBytes content() const;

  /// Calls `look` with parts of `size` bytes from `offset` on, one after another: each as it lies
  /// in the system's cache where that can be mapped, which saves a copy. A part lasts for the call.
  /// Throws Error if the file ends before. Nobody may make the file shorter meanwhile.
  void look(std::uint64_t offset, std::uint64_t size,
            const std::function<void(ConstBytes part)>& look) const;

  /// Lets the system write these bytes to the disk now rather than in sync(). Does not wait.
  void begin_sync(std::uint64_t offset, std::uint64_t size) const noexcept;

  /// Waits until all written bytes are on the disk.
  void sync() const;

  /// True if the name still leads to this file: nobody has removed, renamed or replaced it or a
  /// folder above it.
  [[nodiscard]] bool is_in_place() const noexcept;

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path name_;
  Descriptor descriptor_;
  ErrorKind failure_ = ErrorKind::error;
};

/// A file that gets its name once its content is on the disk. It has no name before (O_TMPFILE), so
/// a process that ends leaves nothing behind. Where the system lacks O_TMPFILE, or can't name such
/// a file, the file has a temporary name, which the destructor removes (see
/// sweep_temporary_files()). Every failure throws an Error that names the file and the reason.
class NewFile : private NonCopyable {
 public:
  /// The file gets the permissions of `mode` that the umask leaves.
  explicit NewFile(std::filesystem::path path, unsigned mode = 0666);
  ~NewFile();

  /// Appends `text`.
  void write(std::string_view text) const { file_->write(text); }

  /// Waits until the written bytes are on the disk and gives the file its name. Returns false if a
  /// file has the name already.
  [[nodiscard]] bool publish();
  /// The same, in place of a file of this name. Throws Error for a folder, FIFO, socket or device.
  void publish_over();

 private:
  // Gives the file its name. Returns false if another file has it.
  [[nodiscard]] bool link();
  // Gives the file `name`. Returns 0, or the errno.
  int link_as(const std::filesystem::path& name);
  // The same for a temporary name, where the file system can't link.
  int take_name(const std::filesystem::path& name);
  // Makes the file under a temporary name.
  void make_temporary();

  std::filesystem::path path_;
  unsigned mode_;
  std::filesystem::path temporary_;  // empty while the file has none
  std::optional<File> file_;
};

/// Waits until the name `path` is on the disk, by syncing the folder around it.
void sync_parent(const std::filesystem::path& path);

/// Writes `text` to the file `path`. A reader finds the old file or the new one, never a part, even
/// after a crash. Throws Error if the file can't be written. An error leaves nothing behind, nor
/// does a killed process (but see sweep_temporary_files()).
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// The same for a new file. Returns false if it exists. If several processes write it at once, one
/// gets true.
[[nodiscard]] bool write_new_file(const std::filesystem::path& path, std::string_view text);

/// Removes temporary files that killed writers of `path` have left. A writer has one while it
/// replaces an existing file; where the file system lacks O_TMPFILE, from its beginning.
void sweep_temporary_files(const std::filesystem::path& path);

}  // namespace lockstep
