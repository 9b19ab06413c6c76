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

/// All bytes of a file. They stay while a copy of their owner is there. Any thread.
struct FileBytes {
  std::span<const std::uint8_t> bytes{};
  std::shared_ptr<const void> owner{};

  [[nodiscard]] static FileBytes of(std::vector<std::uint8_t> bytes);
};

/// An open file, closed with the object. Every failure throws an Error that names the file and the
/// reason.
class File : private NonCopyable {
 public:
  /// `flags` as open(2) takes them. A new file gets the permissions of `mode` that the umask
  /// leaves. Messages call the file `name`; the default is the path. Without O_DIRECTORY, what is
  /// no regular file is refused at once (see base/open_file.h).
  File(const std::filesystem::path& path, int flags, std::filesystem::path name = {},
       unsigned mode = 0666);
  /// One that is open. Messages call it `name`; failures are errors of this kind.
  File(Descriptor opened, std::filesystem::path name, ErrorKind failure = ErrorKind::error) noexcept
      : name_(std::move(name)), descriptor_(std::move(opened)), failure_(failure) {}

  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

  /// Hands all of `text` to the kernel, in one call where it takes that much.
  void write(std::string_view text) const;

  [[nodiscard]] std::uint64_t size() const;

  /// Reads the bytes from `offset` on, as many as `to` has. Error if the file ends before.
  void read(std::uint64_t offset, Bytes to) const;
  /// The same as far as the file reaches; returns how many these are.
  [[nodiscard]] std::size_t read_some(std::uint64_t offset, Bytes to) const;

  /// The whole file: mapped, or in memory if it is small, since a process may have only so many
  /// maps (65530 by Linux's default). Nobody may make the file shorter while it is mapped: reading
  /// beyond the new end ends the process (SIGBUS).
  [[nodiscard]] FileBytes content() const;

  /// Calls `look` with parts of `size` bytes from `offset` on, one after another: each as it lies
  /// in the system's cache where that can be mapped, which saves a copy. A part lasts for the call.
  /// Error if the file ends before. Nobody may make the file shorter meanwhile.
  void look(std::uint64_t offset, std::uint64_t size,
            const std::function<void(ConstBytes part)>& look) const;

  /// Lets the system write these bytes to the disk now rather than in sync(). Does not wait.
  void begin_sync(std::uint64_t offset, std::uint64_t size) const noexcept;

  /// Waits until what was written is on the disk.
  void sync() const;

  /// Whether the name still leads to this file: nobody has removed, renamed or replaced it or a
  /// folder above it.
  [[nodiscard]] bool is_in_place() const noexcept;

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path name_;
  Descriptor descriptor_;
  ErrorKind failure_ = ErrorKind::error;
};

/// A file that gets its name once its content is on the disk. It has no name before (O_TMPFILE), so
/// a process that ends leaves nothing behind. Where the system lacks that, or gives such a file no
/// name, it has a temporary name, which the destructor removes (see sweep_temporary_files()). Every
/// failure throws an Error that names the file and the reason.
class NewFile : private NonCopyable {
 public:
  /// The file gets the permissions of `mode` that the umask leaves.
  explicit NewFile(std::filesystem::path path, unsigned mode = 0666);
  ~NewFile();

  /// Appends.
  void write(std::string_view text) const { file_->write(text); }

  /// Waits until what was written is on the disk and gives the file its name. False if a file has
  /// the name already.
  [[nodiscard]] bool publish();
  /// The same, in place of a file that has the name. Error for a folder, FIFO, socket or device.
  void publish_over();

 private:
  // Gives it its name, unless a file has that.
  [[nodiscard]] bool link();
  // Gives it `name`; 0, or the errno why not.
  int link_as(const std::filesystem::path& name);
  // The same for its temporary name where the file system can't link.
  int take_name(const std::filesystem::path& name);
  // Makes the file of the temporary name.
  void make_temporary();

  std::filesystem::path path_;
  unsigned mode_;
  std::filesystem::path temporary_;  // empty while it has no name
  std::optional<File> file_;
};

/// Waits until the name of what is at `path` is on the disk: it is once the folder around it is.
void sync_parent(const std::filesystem::path& path);

/// Writes `text` to the file `path`. A reader finds the old file or the new one, never a part, even
/// after a crash. Throws Error if the file can't be written. Then nothing is left behind; nor if
/// the process is killed (but see sweep_temporary_files()).
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// The same for a new file. False if it exists. Of several processes that write it at once, one
/// gets true.
[[nodiscard]] bool write_new_file(const std::filesystem::path& path, std::string_view text);

/// Removes temporary files that killed writers of `path` have left. A writer has one while it
/// replaces an existing file; where the file system lacks O_TMPFILE, from its beginning.
void sweep_temporary_files(const std::filesystem::path& path);

}  // namespace lockstep
