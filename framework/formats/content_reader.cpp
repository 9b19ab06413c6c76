#include "framework/formats/content_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <new>
#include <string_view>
#include <utility>

#include <zlib.h>

#include "framework/base/limits.h"
#include "framework/base/text.h"

namespace lockstep::formats {
namespace {

using std::operator""sv;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kPackedBytes = std::size_t{1} << 18;

// What is at the beginning of a file that is packed, and no text begins with.
struct ForeignPacking {
  const char* name;
  const char* remedy;
  std::string_view magic;
  std::size_t place = 0;  // of `more`, where the magic is too short
  std::string_view more = {};
};
constexpr std::array kForeign{
    ForeignPacking{"packed by xz", "unpack it first, by 'xz -d'", "\xfd\x37zXZ\0"sv},
    ForeignPacking{"packed by zstd", "unpack it first, by 'zstd -d'", "\x28\xb5\x2f\xfd"sv},
    ForeignPacking{"packed by lz4", "unpack it first, by 'lz4 -d'", "\x04\x22\x4d\x18"sv},
    ForeignPacking{"packed by lzip", "unpack it first, by 'lzip -d'", "LZIP\1"sv},
    ForeignPacking{"packed by 7z", "unpack it first, by '7z x'", "7z\xbc\xaf\x27\x1c"sv},
    ForeignPacking{"packed by zip", "unpack it first, by 'unzip'; save a spreadsheet as CSV",
                   "PK\3\4"sv},
    ForeignPacking{"packed by rar", "unpack it first, by 'unrar x'", "Rar!\x1a\7"sv},
    ForeignPacking{"packed by compress", "unpack it first, by 'uncompress'", "\x1f\x9d"sv},
    // Behind a digit a block, or the end.
    ForeignPacking{"packed by bzip2", "unpack it first, by 'bzip2 -d'", "BZh"sv, 4, "1AY&SY"sv},
    ForeignPacking{"packed by bzip2", "unpack it first, by 'bzip2 -d'", "BZh"sv, 4,
                   "\x17\x72\x45\x38\x50\x90"sv},
    // Behind the dictionary's size the content's, unknown or below 1 TiB, and a 0 of the data.
    ForeignPacking{"packed by lzma", "unpack it first, by 'unlzma'", "]\0\0"sv, 5,
                   "\xff\xff\xff\xff\xff\xff\xff\xff\0"sv},
    ForeignPacking{"packed by lzma", "unpack it first, by 'unlzma'", "]\0\0"sv, 10, "\0\0\0\0"sv},
    // Behind the letters the first field of a page's or of the file's description.
    ForeignPacking{"a Parquet file", "write it as CSV or text first", "PAR1\x15"sv},
};
constexpr std::size_t kHeaderOfTar = 512;

// Whether it begins with a header of tar, of any kind: that has, in octal digits, the sum of its
// bytes with blanks in place of these.
bool is_tar(std::span<const std::uint8_t> begin) {
  constexpr std::size_t kSum = 148;
  constexpr std::size_t kDigits = 8;
  if (begin.size() < kHeaderOfTar) return false;
  const auto header = begin.first(kHeaderOfTar);
  std::string digits;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool is_digit = i >= kSum && i < kSum + kDigits;
    sum += is_digit ? ' ' : header[i];
    if (is_digit && header[i] != ' ' && header[i] != 0) digits += static_cast<char>(header[i]);
  }
  std::uint64_t said = 0;
  const char* const end = digits.data() + digits.size();
  return std::from_chars(digits.data(), end, said, 8).ptr == end && said == sum;
}

}  // namespace

void refuse_foreign(const std::string& path, std::span<const std::uint8_t> begin) {
  for (const auto& [name, remedy, magic, place, more] : kForeign) {
    if (!has_at(begin, 0, magic) || !has_at(begin, place, more)) continue;
    fail_file(path, str("it is ", name, ", which can't be read: ", remedy));
  }
  if (is_tar(begin)) {
    fail_file(path, "it is packed by tar, which can't be read: unpack it first, by 'tar -xf'");
  }
}

// Over zlib's inflate, not its gzread: that one can take a file that ends inside its gzip checksum
// for a whole one (1.2.13 does, if all input is used up when the content is complete), and passes
// over foreign bytes behind the gzip data.
struct ContentReader::Unpacking : private NonCopyable {
  Unpacking(const std::string& path, std::size_t size) : packed(std::min(kPackedBytes, size + 1)) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) fail_file(path, "zlib cannot be initialized");
  }
  ~Unpacking() { inflateEnd(&stream); }

  std::vector<std::uint8_t> packed;  // a part of the file's bytes
  z_stream stream{};
  bool in_member = false;
  bool cut_short = false;
};

ContentReader::ContentReader(const std::string& path) : path_(path), file_(open_data(path)) {
  std::vector<std::uint8_t> begin(kHeaderOfTar);
  begin.resize(file_.read_some(0, std::as_writable_bytes(std::span(begin))));
  refuse_foreign(path_, begin);
  if (is_gzip(begin)) unpacking_ = std::make_unique<Unpacking>(path_, file_.size());
}

ContentReader::~ContentReader() = default;

std::size_t ContentReader::read(std::span<std::uint8_t> into) {
  const std::size_t count = unpacking_ ? unpack(into) : take(into);
  bytes_ += count;
  return count;
}

void ContentReader::expect(std::size_t bytes, std::string meaning) {
  expected_ = bytes;
  meaning_ = std::move(meaning);
}

void ContentReader::check_size() const {
  if (unpacking_ && expected_ / kDeflateRatio > file_.size()) {
    fail(str("it is cut short: its ", file_.size(), " bytes of gzip data can't hold ", expected_,
             " (", meaning_, ")"));
  }
  if (!unpacking_ && file_.size() < expected_) fail_short(file_.size());
  if (!unpacking_ && file_.size() > expected_) fail_long();
  require_memory_for(expected_);
}

void ContentReader::require_memory_for(std::size_t bytes) const {
  require_memory(path_, bytes, unpacking_ ? "its content, unpacked, takes" : "its content takes");
}

void ContentReader::check_end() {
  std::uint8_t surplus = 0;
  if (read({&surplus, 1}) > 0) fail_long();
  if (unpacking_ && unpacking_->cut_short) {
    fail(str("it is cut short: all ", expected_,
             " bytes of content are there, but not the end of its gzip data with the checksum"));
  }
}

std::vector<std::uint8_t> ContentReader::read_rest() {
  const bool is_known = expected_ > 0;
  std::vector<std::uint8_t> content;
  try {
    if (is_known) content.reserve(expected_ - bytes_);  // pages are taken as they are filled
    for (std::size_t count = 1; count > 0;) {
      const std::size_t filled = content.size();
      const std::size_t part =
          std::min(kReadBytes, is_known ? expected_ - bytes_ : filled + file_.size());
      if (filled + part > content.capacity()) require_memory_for(2 * content.capacity());
      content.resize(filled + part);
      count = read(std::span(content).subspan(filled));
      content.resize(filled + count);
    }
  } catch (const std::bad_alloc&) {
    fail("its content takes more memory than there is" + memory_limit_text());
  }
  if (is_known) {
    if (bytes_ < expected_) fail_short(bytes_);
    check_end();
  } else if (unpacking_ && unpacking_->cut_short) {
    fail(str("it is cut short: it ends after ", bytes_,
             " bytes of content, in the middle of its gzip data"));
  }
  return content;
}

void ContentReader::fail_short(std::size_t end) const {
  fail(str("it is cut short: it ends after ", end, " of ", expected_, " bytes (", meaning_, ")",
           unpacking_ && unpacking_->cut_short ? ", in the middle of its gzip data" : ""));
}

void ContentReader::fail_long() const {
  fail(str("it is too long: bytes follow the ", expected_, " that belong there (", meaning_, ")"));
}

// The next bytes of the file, as they lie on the disk.
std::size_t ContentReader::take(std::span<std::uint8_t> into) {
  const std::size_t count = file_.read_some(taken_, std::as_writable_bytes(into));
  taken_ += count;
  return count;
}

// A gzip file is one or more members, each with a header and a checksum of its own.
std::size_t ContentReader::unpack(std::span<std::uint8_t> into) {
  z_stream& stream = unpacking_->stream;
  stream.next_out = into.data();
  stream.avail_out = static_cast<uInt>(into.size());
  while (stream.avail_out > 0 && !unpacking_->cut_short) {
    if (stream.avail_in == 0) {
      stream.next_in = unpacking_->packed.data();
      stream.avail_in = static_cast<uInt>(take(unpacking_->packed));
    }
    if (!unpacking_->in_member) {
      if (stream.avail_in == 0) break;
      // Tapes and block devices fill up with zeros behind a member.
      for (; stream.avail_in > 0 && *stream.next_in == 0; ++stream.next_in) --stream.avail_in;
      if (stream.avail_in == 0) continue;
      inflateReset(&stream);
    }
    const int result = inflate(&stream, Z_NO_FLUSH);
    unpacking_->in_member = result != Z_STREAM_END;
    unpacking_->cut_short = result == Z_BUF_ERROR;  // neither input is left nor output to come
    if (result == Z_OK || !unpacking_->in_member || unpacking_->cut_short) continue;
    fail(str("it is damaged: its gzip data cannot be unpacked behind ",
             bytes_ + into.size() - stream.avail_out, " bytes of content (",
             stream.msg != nullptr ? stream.msg : zError(result), ")"));
  }
  return into.size() - stream.avail_out;
}

FileBytes content_of(const std::string& path) {
  FileBytes file = open_data(path).content();
  refuse_foreign(path, file.bytes);
  if (!is_gzip(file.bytes)) return file;
  std::vector<std::uint8_t> content = ContentReader(path).read_rest();
  refuse_foreign(path, content);
  if (is_gzip(content))
    fail_file(path, "it is packed by gzip twice: unpack it first, by 'gzip -d'");
  return FileBytes::of(std::move(content));
}

}  // namespace lockstep::formats
