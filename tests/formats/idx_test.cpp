#include "framework/formats/idx.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/formats/idx_files.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::formats;
using namespace lockstep::testing;

namespace {

struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

IdxArray read_idx(const std::string& path, std::int64_t dimensions) {
  IdxFile file(path, dimensions);
  return {file.shape(), file.read_values()};
}

// A 2 x 3 x 4 array of values that deflate cannot pack to nothing.
std::string small_values() {
  std::string values;
  for (unsigned i = 0; i < 24; ++i) values += static_cast<char>(i * 89 % 256);
  return values;
}

std::string small_file() {
  return idx_header({2, 3, 4}) + small_values();
}

void check_small(const IdxArray& array) {
  CHECK(array.shape == std::vector<std::int64_t>{2, 3, 4});
  const std::string values = small_values();
  CHECK(array.values == std::vector<std::uint8_t>(values.begin(), values.end()));
}

std::string read_error(const std::string& path, std::int64_t dimensions = 3) {
  return message_of<DataError>([&] { (void)read_idx(path, dimensions); });
}

}  // namespace

TEST_CASE("an IDX file is read, plain or gzip, whatever its name") {
  const TemporaryFolder folder;
  check_small(read_idx(folder.write("plain", small_file()), 3));
  check_small(read_idx(folder.write("packed.gz", gzip(small_file())), 3));
  check_small(read_idx(folder.write("packed-without-gz", gzip(small_file())), 3));
  check_small(read_idx(folder.write("plain.gz", small_file()), 3));
}

TEST_CASE("a gzip file of several members is read as one") {
  const TemporaryFolder folder;
  const std::string bytes = small_file();
  const std::string members = gzip(bytes.substr(0, 20)) + gzip(bytes.substr(20));
  check_small(read_idx(folder.write("members.gz", members), 3));
  CHECK_THAT(read_error(folder.write("doubled.gz", gzip(bytes) + gzip(bytes))),
             ContainsSubstring("too long"));
}

TEST_CASE("an IDX file larger than a chunk of reading is read in full") {
  const TemporaryFolder folder;
  std::string values((std::size_t{5} << 19) + 7, '\0');  // 2.5 chunks and a bit
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i % 251);
  const std::string bytes = idx_header({static_cast<std::uint32_t>(values.size())}) + values;
  for (const bool packed : {false, true}) {
    const auto array = read_idx(folder.write("large", packed ? gzip(bytes) : bytes), 1);
    CHECK(array.shape == std::vector<std::int64_t>{static_cast<std::int64_t>(values.size())});
    const bool same = array.values == std::vector<std::uint8_t>(values.begin(), values.end());
    CHECK(same);
  }
}

TEST_CASE("an IDX file may hold no values") {
  const TemporaryFolder folder;
  const auto array = read_idx(folder.write("none", idx_header({0, 28, 28})), 3);
  CHECK(array.shape == std::vector<std::int64_t>{0, 28, 28});
  CHECK(array.values.empty());
}

TEST_CASE("an IDX file cut short anywhere is an error that names it and says where it ends") {
  const TemporaryFolder folder;
  const std::string bytes = small_file();
  for (std::size_t kept = 0; kept < bytes.size(); ++kept) {
    CAPTURE(kept);
    const std::string path = folder.write("cut", bytes.substr(0, kept));
    const std::string expected = kept < 16 ? "16 bytes (the header of 3 dimensions)"
                                           : "40 bytes (a header of 16 and 2 x 3 x 4 values)";
    CHECK(read_error(path) == "data file '" + path + "': it is cut short: it ends after " +
                                  std::to_string(kept) + " of " + expected);
  }
}

TEST_CASE("a gzip file cut short anywhere is an error, in its checksum too") {
  const TemporaryFolder folder;
  const std::string packed = gzip(small_file());
  for (std::size_t kept = 0; kept < packed.size(); ++kept) {
    CAPTURE(kept);
    const std::string path = folder.write("cut.gz", packed.substr(0, kept));
    const std::string message = read_error(path);
    CHECK_THAT(message, ContainsSubstring("'" + path + "'"));
    CHECK_THAT(message, ContainsSubstring("it is cut short"));
    // With less than its two magic bytes nothing tells a gzip file from another.
    if (kept >= 2) CHECK_THAT(message, ContainsSubstring("gzip data"));
    // The trailer is 8 bytes; the content's last bits are in what is before.
    if (kept >= packed.size() - 8) CHECK_THAT(message, ContainsSubstring("checksum"));
  }
}

TEST_CASE("a gzip file of several chunks cut short is an error") {
  const TemporaryFolder folder;
  std::string values(std::size_t{3} << 20, '\0');
  std::uint32_t state = 1;
  for (char& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<char>(state >> 24);
  }
  const std::string packed = gzip(idx_header({static_cast<std::uint32_t>(values.size())}) + values);
  for (const std::size_t lost :
       {std::size_t{1}, std::size_t{8}, std::size_t{9}, packed.size() / 2, packed.size() - 1000}) {
    CAPTURE(lost);
    const std::string path = folder.write("cut.gz", packed.substr(0, packed.size() - lost));
    CHECK_THAT(read_error(path, 1), ContainsSubstring("it is cut short"));
  }
}

TEST_CASE("a damaged gzip file is an error") {
  const TemporaryFolder folder;
  const std::string packed = gzip(small_file());
  // The stream's last byte, the checksum and the length.
  for (std::size_t place = packed.size() - 9; place < packed.size(); ++place) {
    CAPTURE(place);
    std::string damaged = packed;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x20);
    const std::string path = folder.write("damaged.gz", damaged);
    CHECK_THAT(read_error(path), ContainsSubstring("'" + path + "'"));
  }
  std::string wrong_checksum = packed;
  wrong_checksum[packed.size() - 8] = static_cast<char>(wrong_checksum[packed.size() - 8] ^ 1);
  CHECK_THAT(read_error(folder.write("damaged.gz", wrong_checksum)),
             ContainsSubstring("it is damaged: its gzip data cannot be unpacked behind 40 bytes of "
                               "content (incorrect data check)"));
  CHECK_THAT(read_error(folder.write("followed.gz", packed + "foreign bytes")),
             ContainsSubstring("behind 40 bytes of content (incorrect header check)"));
}

TEST_CASE("bytes behind an IDX file's values are an error") {
  const TemporaryFolder folder;
  const std::string rule =
      "it is too long: bytes follow the 40 that belong there (a header of 16 and 2 x 3 x 4 values)";
  CHECK_THAT(read_error(folder.write("long", small_file() + '\0')), ContainsSubstring(rule));
  CHECK_THAT(read_error(folder.write("long", gzip(small_file() + '\0'))), ContainsSubstring(rule));
}

TEST_CASE("a foreign file is an error that says what gives it away") {
  const TemporaryFolder folder;
  std::string bytes = small_file();
  CHECK_THAT(
      read_error(folder.write("text", "Not found. Sorry.\n")),
      ContainsSubstring("it is no IDX file: it starts with the bytes 4e 6f instead of 00 00"));
  bytes[1] = '\x01';
  CHECK_THAT(read_error(folder.write("magic", bytes)),
             ContainsSubstring("it starts with the bytes 00 01 instead of 00 00"));
  bytes = small_file();
  bytes[2] = '\x0d';
  CHECK_THAT(read_error(folder.write("type", bytes)),
             ContainsSubstring(
                 "its elements are of type 0x0d, but only 0x08 (unsigned byte) can be read"));
  CHECK_THAT(read_error(folder.write("dimensions", small_file()), 1),
             ContainsSubstring("its number of dimensions is 3, but must be 1"));
}

TEST_CASE("what is no file is an error") {
  const TemporaryFolder folder;
  CHECK(read_error(folder.path("missing")) ==
        "data file '" + folder.path("missing") + "': there is no such file");
  CHECK(read_error(folder.path()) ==
        "data file '" + folder.path().string() + "': it is a folder, not a file");
  CHECK_THAT(read_error("/dev/null"), ContainsSubstring("it is a device, not a file"));
  std::filesystem::create_symlink("itself", folder.path("itself"));
  CHECK_THAT(read_error(folder.path("itself")), ContainsSubstring("it cannot be opened: "));
}

TEST_CASE("a header's sizes are not believed before the values are seen") {
  const TemporaryFolder folder;
  const auto too_many = idx_header({0xffffffffU, 0xffffffffU, 0xffffffffU}) + small_values();
  CHECK_THAT(read_error(folder.write("too-many", too_many)),
             ContainsSubstring("its header says 4294967295 x 4294967295 x 4294967295 values, which "
                               "is more than any file can hold"));

  // 2^62 bytes, which no allocation would get.
  const auto huge = idx_header({1U << 31, 1U << 31}) + small_values();
  CHECK_THAT(read_error(folder.write("huge", huge), 2),
             ContainsSubstring("it ends after 36 of 4611686018427387916 bytes"));
  const auto packed = gzip(huge);
  CHECK_THAT(read_error(folder.write("huge", packed), 2),
             ContainsSubstring("it is cut short: its " + std::to_string(packed.size()) +
                               " bytes of gzip data can't hold 4611686018427387916 (a header of "
                               "12 and 2147483648 x 2147483648 values)"));
}

TEST_CASE("a file whose size belies its header is refused before its values are read") {
  const TemporaryFolder folder;
  const auto header_error = [&](const std::string& bytes) {
    const std::string path = folder.write("file", bytes);
    return message_of<DataError>([&] { const IdxFile file(path, 1); });
  };
  const std::string zeros(2'000'000, '\0');
  CHECK_THAT(header_error(idx_header({2'000'001}) + zeros), ContainsSubstring("it is cut short"));
  CHECK_THAT(header_error(idx_header({1'999'999}) + zeros), ContainsSubstring("it is too long"));
  CHECK_THAT(header_error(gzip(idx_header({3'000'000'000U}) + zeros)),
             ContainsSubstring("it is cut short: its "));
  // What gzip packs as well as it can is not mistaken for that.
  CHECK(header_error(gzip(idx_header({2'000'000}) + zeros)) == "no error");
}
