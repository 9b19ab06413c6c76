#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"

namespace lockstep::formats {

/// Throws the DataError that names the file and says `rule`, which it breaks.
[[noreturn]] void fail_file(const std::string& path, const std::string& rule);

/// Whether anything is at `path`, readable or not: a reader says what is wrong with it.
[[nodiscard]] bool is_there(const std::filesystem::path& path);

/// Throws such an error if so many bytes more can't be had: `what` ("its text takes"), both numbers
/// and `advice`.
void require_memory(const std::string& path, std::size_t bytes, const std::string& what,
                    const std::string& advice = "");

/// Gets what is damaged in place of the caller, who gets the rest.
using OnDamage = std::function<void(const DataError& damage)>;

/// Calls `work`, whose DataError goes to `on_damage`, if that is there.
void do_or_tell(const OnDamage& on_damage, const std::function<void()>& work);

/// Whether `text` is in these bytes at this place.
[[nodiscard]] bool has_at(std::span<const std::uint8_t> bytes, std::size_t place,
                          std::string_view text) noexcept;

/// All bytes of a file. They stay while a copy of this is there. Any thread.
class FileBytes {
 public:
  FileBytes() = default;
  explicit FileBytes(std::vector<std::uint8_t> bytes);
  FileBytes(std::shared_ptr<const std::uint8_t> memory, std::size_t size) noexcept
      : memory_(std::move(memory)), size_(size) {}

  [[nodiscard]] std::span<const std::uint8_t> span() const noexcept {
    return {memory_.get(), size_};
  }

 private:
  std::shared_ptr<const std::uint8_t> memory_;
  std::size_t size_ = 0;
};

/// A regular file, open to be read from its beginning on. DataError, naming the file, if it is
/// missing, no regular file or unreadable.
class DataFile {
 public:
  explicit DataFile(const std::string& path);

  /// In bytes, as it lies on the disk.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Fills `into` with the next bytes as far as the file reaches; returns how many these are.
  [[nodiscard]] std::size_t read(std::span<std::uint8_t> into) const;

  /// The whole file: mapped, or in memory if it is small, since a process may have only so many
  /// maps (65530 by Linux's default). Call it before any read(). Nobody may make the file shorter
  /// while it is mapped: reading beyond the new end ends the process (SIGBUS).
  [[nodiscard]] FileBytes bytes() const;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[noreturn]] void fail(const std::string& rule) const { fail_file(path_, rule); }

 private:
  std::string path_;
  Descriptor descriptor_;
  std::size_t size_ = 0;
};

}  // namespace lockstep::formats
