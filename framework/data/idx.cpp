#include "framework/data/idx.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <system_error>

#include <zlib.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kSizeBytes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;
// How far a header is trusted before its data is seen: enough for MNIST's sets in one piece.
constexpr std::size_t kTrustedBytes = std::size_t{64} << 20;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

std::string hex(std::uint8_t byte) {
  std::array<char, 3> text{};
  std::snprintf(text.data(), text.size(), "%02x", static_cast<unsigned>(byte));
  return text.data();
}

// The bytes of a file, unpacked if it is a gzip file.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (status.type() == std::filesystem::file_type::not_found) fail("there is no such file");
    if (error) fail(str("it cannot be read: ", error.message()));
    // A folder would open, and a pipe without a writer would block.
    if (!std::filesystem::is_regular_file(status)) fail("it is a folder or device, not a file");
    errno = 0;
    file_.reset(gzopen(path.c_str(), "rb"));
    if (!file_) fail(str("it cannot be opened: ", std::generic_category().message(errno)));
    gzbuffer(file_.get(), 1U << 18);
  }

  // Fills `into` as far as the file reaches; returns how many bytes that is.
  std::size_t read(std::span<std::uint8_t> into) {
    std::size_t done = 0;
    while (done < into.size() && !cut_short_) {
      const auto wanted = static_cast<unsigned>(std::min(into.size() - done, kChunkBytes));
      const int got = gzread(file_.get(), into.data() + done, wanted);
      if (got > 0) done += static_cast<std::size_t>(got);
      // gzread does not count the end of a file inside its gzip data as a failure.
      int code = Z_OK;
      const std::string reason = gzerror(file_.get(), &code);
      cut_short_ = code == Z_BUF_ERROR;
      if (!cut_short_ && (got < 0 || code != Z_OK)) {
        fail(str("it is damaged or unreadable after ", bytes_ + done, " bytes of content (", reason,
                 ")"));
      }
      if (got <= 0) break;
    }
    bytes_ += done;
    return done;
  }

  // Like read, but a file that ends before `into` is full is an error. `expected` is how many bytes
  // of content the file should have in all, and `meaning` what they are.
  void read_all(std::span<std::uint8_t> into, std::size_t expected, const std::string& meaning) {
    if (read(into) < into.size()) {
      fail(str("it is cut short: it ends after ", bytes_, " of ", expected, " bytes (", meaning,
               ")", cut_short_ ? ", in the middle of its gzip data" : ""));
    }
  }

  void expect_end(std::size_t expected, const std::string& meaning) {
    std::array<std::uint8_t, 1> surplus{};
    if (read(surplus) > 0) {
      fail(
          str("it is too long: bytes follow the ", expected, " that belong there (", meaning, ")"));
    }
    if (cut_short_) {
      fail(str("it is cut short: all ", expected,
               " bytes of content are there, but not the end of its gzip data with the checksum"));
    }
  }

  [[noreturn]] void fail(const std::string& rule) const {
    throw DataError(str("data file '", path_, "': ", rule));
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::size_t bytes_ = 0;
  bool cut_short_ = false;
};

void check_magic(const Reader& reader, std::span<const std::uint8_t, kMagicBytes> magic,
                 std::int64_t dimensions) {
  if (magic[0] != 0 || magic[1] != 0) {
    reader.fail(str("it is no IDX file: it starts with the bytes ", hex(magic[0]), " ",
                    hex(magic[1]), " instead of 00 00"));
  }
  if (magic[2] != kUnsignedByte) {
    reader.fail(str("its elements are of type 0x", hex(magic[2]), ", but only 0x",
                    hex(kUnsignedByte), " (unsigned byte) can be read"));
  }
  if (magic[3] != dimensions) {
    reader.fail(str("its number of dimensions is ", int{magic[3]}, ", but must be ", dimensions));
  }
}

}  // namespace

IdxArray read_idx(const std::string& path, std::int64_t dimensions) {
  if (dimensions < 1 || dimensions > 255) {
    throw ValueError(str("read_idx: dimensions is ", dimensions, ", but must be 1 ... 255"));
  }
  Reader reader(path);
  const auto rank = static_cast<std::size_t>(dimensions);
  const std::size_t header = kMagicBytes + kSizeBytes * rank;
  const std::string header_meaning = str("the header of ", rank, " dimensions");

  std::array<std::uint8_t, kMagicBytes> magic{};
  reader.read_all(magic, header, header_meaning);
  check_magic(reader, magic, dimensions);

  std::vector<std::uint8_t> sizes(kSizeBytes * rank);
  reader.read_all(sizes, header, header_meaning);
  IdxArray array;
  for (std::size_t i = 0; i < sizes.size(); i += kSizeBytes) {
    array.shape.push_back(std::int64_t{sizes[i]} << 24 | std::int64_t{sizes[i + 1]} << 16 |
                          std::int64_t{sizes[i + 2]} << 8 | std::int64_t{sizes[i + 3]});
  }

  const std::string shape = join(array.shape, " x ");
  std::size_t count = 1;
  for (const std::int64_t size : array.shape) {
    const std::size_t limit = std::numeric_limits<std::int64_t>::max() - header;
    if (size != 0 && count > limit / static_cast<std::size_t>(size)) {
      reader.fail(str("its header says ", shape, " values, which is more than any file can hold"));
    }
    count *= static_cast<std::size_t>(size);
  }

  const std::size_t expected = header + count;
  const std::string meaning = str("a header of ", header, " and ", shape, " values");
  array.values.reserve(std::min(count, kTrustedBytes));
  while (array.values.size() < count) {
    const std::size_t start = array.values.size();
    array.values.resize(start + std::min(count - start, kChunkBytes));
    reader.read_all(std::span(array.values).subspan(start), expected, meaning);
  }
  reader.expect_end(expected, meaning);
  return array;
}

}  // namespace lockstep
