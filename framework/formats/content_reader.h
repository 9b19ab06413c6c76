#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/base/non_copyable.h"
#include "framework/formats/data_file.h"

namespace lockstep::formats {

/// Each byte of deflate can stand for this many at most: two bits for 258 of them.
inline constexpr std::size_t kDeflateRatio = 1032;

/// Whether these are the first bytes of gzip data.
[[nodiscard]] inline bool is_gzip(std::span<const std::uint8_t> bytes) noexcept {
  return has_at(bytes, 0, "\x1f\x8b");
}

/// DataError if these first bytes, up to 512 of them, are of data that are packed in another way
/// than by gzip (xz, lzma, bzip2, zstd, lz4, lzip, zip, 7z, rar, compress, tar, Parquet).
void refuse_foreign(const std::string& path, std::span<const std::uint8_t> begin);

/// The content of a file from its beginning on: its bytes, or what they unpack to if they are gzip
/// data, whatever the file's name. DataError, naming the file, as open_data() throws it, for gzip
/// data that are damaged, cut short or followed by other bytes than zeros, and by refuse_foreign().
class ContentReader : private NonCopyable {
 public:
  explicit ContentReader(const std::string& path);
  ~ContentReader();

  /// Fills `into` with the next bytes as far as the content reaches; returns how many these are.
  /// Gzip data that are cut short end the content here; check_end() says so.
  [[nodiscard]] std::size_t read(std::span<std::uint8_t> into);

  /// Sets how many bytes the content should have in all, and what they are.
  void expect(std::size_t bytes, std::string meaning);
  /// Like read(), but content that ends before `into` is full is an error.
  void read_all(std::span<std::uint8_t> into) {
    if (read(into) < into.size()) fail_short(bytes_);
  }
  /// Checks the file's own size against what is expected, and this against the memory that is left,
  /// without reading on.
  void check_size() const;
  /// All that is left; error unless it is as long as expected. Where no length is, memory grows
  /// with what is found; DataError, with the numbers, before there is too little.
  [[nodiscard]] std::vector<std::uint8_t> read_rest();

  [[noreturn]] void fail(const std::string& rule) const { fail_file(path_, rule); }

 private:
  struct Unpacking;

  [[noreturn]] void fail_short(std::size_t end) const;
  [[noreturn]] void fail_long() const;
  void require_memory_for(std::size_t bytes) const;
  // Error unless the content ends here, as it is expected to.
  void check_end();
  std::size_t take(std::span<std::uint8_t> into);
  std::size_t unpack(std::span<std::uint8_t> into);

  std::string path_;
  File file_;
  std::uint64_t taken_ = 0;               // of the file's bytes
  std::unique_ptr<Unpacking> unpacking_;  // for a gzip file
  std::size_t bytes_ = 0;                 // given out
  std::size_t expected_ = 0;
  std::string meaning_;
};

/// The whole content of a file, as ContentReader finds it. One that is no gzip file is mapped; see
/// File::content(). DataError also for a gzip file of packed data, such as a .tar.gz.
[[nodiscard]] FileBytes content_of(const std::string& path);

}  // namespace lockstep::formats
