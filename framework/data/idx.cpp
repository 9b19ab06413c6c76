#include "framework/data/idx.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include <zlib.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kSizeBytes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;
// Each byte of deflate can stand for this many: two bits for 258 of them.
constexpr std::size_t kDeflateRatio = 1032;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kBufferBytes = std::size_t{1} << 18;  // for the bytes of a gzip file

std::string hex(std::uint8_t byte) {
  std::array<char, 3> text{};
  std::snprintf(text.data(), text.size(), "%02x", static_cast<unsigned>(byte));
  return text.data();
}

}  // namespace

// The bytes of a file, unpacked if it is a gzip file. Over zlib's inflate, not its gzread: that one
// can take a file that ends inside its gzip checksum for a whole one (1.2.13 does, if all input is
// used up when the content is complete), and passes over foreign bytes behind the gzip data.
class IdxFile::Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    open();
    std::array<std::uint8_t, 2> magic{};
    (void)fill(magic);
    std::rewind(file_.get());
    if (magic[0] != 0x1f || magic[1] != 0x8b) return;
    buffer_.resize(kBufferBytes);
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) fail("zlib cannot be initialized");
    gzip_ = true;
  }
  ~Reader() {
    if (gzip_) inflateEnd(&stream_);
  }

  // Fills `into` as far as the file reaches; returns how many bytes that is.
  std::size_t read(std::span<std::uint8_t> into) {
    const std::size_t count = gzip_ ? unpack(into) : fill(into);
    bytes_ += count;
    return count;
  }

  // Sets how many bytes of content the file should have in all, and what they are.
  void expect(std::size_t bytes, std::string meaning) {
    expected_ = bytes;
    meaning_ = std::move(meaning);
  }

  // Like read, but a file that ends before `into` is full is an error.
  void read_all(std::span<std::uint8_t> into) {
    if (read(into) < into.size()) fail_short(bytes_);
  }

  // Checks the file's own size against what is expected, without reading on.
  void check_size() const {
    if (gzip_ && expected_ / kDeflateRatio > size_) {
      fail(str("it is cut short: its ", size_, " bytes of gzip data can't hold ", expected_, " (",
               meaning_, ")"));
    }
    if (gzip_) return;
    if (size_ < expected_) fail_short(size_);
    if (size_ > expected_) fail_long();
  }

  void check_end() {
    std::array<std::uint8_t, 1> surplus{};
    if (read(surplus) > 0) fail_long();
    if (cut_short_) {
      fail(str("it is cut short: all ", expected_,
               " bytes of content are there, but not the end of its gzip data with the checksum"));
    }
  }

  [[noreturn]] void fail(const std::string& rule) const {
    throw DataError(str("data file '", path_, "': ", rule));
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };

  [[noreturn]] void fail_short(std::size_t end) const {
    fail(str("it is cut short: it ends after ", end, " of ", expected_, " bytes (", meaning_, ")",
             cut_short_ ? ", in the middle of its gzip data" : ""));
  }
  [[noreturn]] void fail_long() const {
    fail(
        str("it is too long: bytes follow the ", expected_, " that belong there (", meaning_, ")"));
  }

  void open() {
    std::error_code error;
    const auto status = std::filesystem::status(path_, error);
    if (status.type() == std::filesystem::file_type::not_found) fail("there is no such file");
    if (error) fail(str("it cannot be read: ", error.message()));
    // A folder would open, and a pipe without a writer would block.
    if (!std::filesystem::is_regular_file(status)) fail("it is a folder or device, not a file");
    file_.reset(std::fopen(path_.c_str(), "rb"));
    if (!file_) fail(str("it cannot be opened: ", std::generic_category().message(errno)));
    size_ = std::filesystem::file_size(path_, error);
    if (error) fail(str("it cannot be read: ", error.message()));
  }

  // The next bytes of the file, as they lie on the disk.
  std::size_t fill(std::span<std::uint8_t> into) {
    const std::size_t count = std::fread(into.data(), 1, into.size(), file_.get());
    if (std::ferror(file_.get()) == 0) return count;
    fail(str("it cannot be read: ", std::generic_category().message(errno)));
  }

  // A gzip file is one or more members, each with a header and a checksum of its own.
  std::size_t unpack(std::span<std::uint8_t> into) {
    stream_.next_out = into.data();
    stream_.avail_out = static_cast<uInt>(into.size());
    while (stream_.avail_out > 0 && !cut_short_) {
      if (stream_.avail_in == 0) {
        stream_.next_in = buffer_.data();
        stream_.avail_in = static_cast<uInt>(fill(buffer_));
      }
      if (stream_.avail_in == 0 && !in_member_) break;
      if (!in_member_) inflateReset(&stream_);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      in_member_ = result != Z_STREAM_END;
      cut_short_ = result == Z_BUF_ERROR;  // neither input is left nor output to come
      if (result == Z_OK || !in_member_ || cut_short_) continue;
      fail(str("it is damaged: its gzip data cannot be unpacked behind ",
               bytes_ + into.size() - stream_.avail_out, " bytes of content (",
               stream_.msg != nullptr ? stream_.msg : zError(result), ")"));
    }
    return into.size() - stream_.avail_out;
  }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::size_t size_ = 0;  // as it lies on the disk
  std::vector<std::uint8_t> buffer_;
  z_stream stream_{};
  std::size_t bytes_ = 0;
  std::size_t expected_ = 0;
  std::string meaning_;
  bool gzip_ = false;
  bool in_member_ = false;
  bool cut_short_ = false;
};

IdxFile::IdxFile(const std::string& path, std::int64_t dimensions)
    : reader_(std::make_unique<Reader>(path)) {
  const auto rank = static_cast<std::size_t>(dimensions);
  const std::size_t header = kMagicBytes + kSizeBytes * rank;
  reader_->expect(header, "the header of " + counted(dimensions, "dimension"));
  std::array<std::uint8_t, kMagicBytes> magic{};
  reader_->read_all(magic);
  if (magic[0] != 0 || magic[1] != 0) {
    fail(str("it is no IDX file: it starts with the bytes ", hex(magic[0]), " ", hex(magic[1]),
             " instead of 00 00"));
  }
  if (magic[2] != kUnsignedByte) {
    fail(str("its elements are of type 0x", hex(magic[2]), ", but only 0x", hex(kUnsignedByte),
             " (unsigned byte) can be read"));
  }
  if (magic[3] != dimensions) {
    fail(str("its number of dimensions is ", int{magic[3]}, ", but must be ", dimensions));
  }

  std::vector<std::uint8_t> sizes(kSizeBytes * rank);
  reader_->read_all(sizes);
  for (std::size_t i = 0; i < sizes.size(); i += kSizeBytes) {
    shape_.push_back(std::int64_t{sizes[i]} << 24 | std::int64_t{sizes[i + 1]} << 16 |
                     std::int64_t{sizes[i + 2]} << 8 | std::int64_t{sizes[i + 3]});
  }
  const std::string shape = join(shape_, " x ");
  for (const std::int64_t size : shape_) {
    const std::size_t limit = std::numeric_limits<std::int64_t>::max() - header;
    if (size != 0 && count_ > limit / static_cast<std::size_t>(size)) {
      fail(str("its header says ", shape, " values, which is more than any file can hold"));
    }
    count_ *= static_cast<std::size_t>(size);
  }
  reader_->expect(header + count_,
                  str("a header of ", header, " and ", shape, count_ == 1 ? " value" : " values"));
  reader_->check_size();
}

IdxFile::~IdxFile() = default;

std::vector<std::uint8_t> IdxFile::read_values() {
  std::vector<std::uint8_t> values;
  try {
    values.reserve(count_);  // pages are taken as they are filled
  } catch (const std::exception&) {
    fail(str("its ", count_, " values take as many bytes of memory, more than there are"));
  }
  while (values.size() < count_) {
    const std::size_t start = values.size();
    values.resize(start + std::min(count_ - start, kChunkBytes));
    reader_->read_all(std::span(values).subspan(start));
  }
  reader_->check_end();
  return values;
}

void IdxFile::fail(const std::string& rule) const {
  reader_->fail(rule);
}

}  // namespace lockstep::data
