#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/errors.h"
#include "framework/storage/file.h"

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

/// The path of standard input, for readers of files: all of it, read once, as if it were a file.
/// One of that name is "./-".
inline constexpr const char* kStandardInput = "-";

/// The most bytes of a file that is read as one text, and of a line.
inline constexpr std::size_t kLongestText = std::size_t{32} << 20;
inline constexpr std::size_t kLongestLine = std::size_t{16} << 20;

/// A regular file, or standard input, open to be read; what fails later is a DataError, too.
/// DataError, naming the file, if it is missing, no regular file or unreadable.
[[nodiscard]] File open_data(const std::string& path);

/// All of such a file. DataError, naming it, if it is longer than `most` bytes.
[[nodiscard]] std::string text_in(const std::filesystem::path& path,
                                  std::size_t most = kLongestText);

/// Calls `take` with each line of such a file, without its end, and whether it has one, until it
/// returns false. DataError, naming file and line, for one longer than kLongestLine.
void for_each_line(const std::filesystem::path& path,
                   const std::function<bool(std::string_view line, bool has_end)>& take);

}  // namespace lockstep::formats
