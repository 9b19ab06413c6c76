#include "framework/formats/idx.h"

#include <array>
#include <limits>

#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep::formats {
namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kSizeBytes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;

}  // namespace

IdxFile::IdxFile(const std::string& path, std::int64_t dimensions) : reader_(path) {
  const auto rank = static_cast<std::size_t>(dimensions);
  const std::size_t header = kMagicBytes + kSizeBytes * rank;
  reader_.expect(header, "the header of " + counted(dimensions, "dimension"));
  std::array<std::uint8_t, kMagicBytes> magic{};
  reader_.read_all(magic);
  if (magic[0] != 0 || magic[1] != 0) {
    fail(str("it is no IDX file: it starts with the bytes ", hexadecimal(magic[0], 2), " ",
             hexadecimal(magic[1], 2), " instead of 00 00"));
  }
  if (magic[2] != kUnsignedByte) {
    fail(str("its elements are of type 0x", hexadecimal(magic[2], 2), ", but only 0x",
             hexadecimal(kUnsignedByte, 2), " (unsigned byte) can be read"));
  }
  if (magic[3] != dimensions) {
    fail(str("its number of dimensions is ", int{magic[3]}, ", but must be ", dimensions));
  }

  std::vector<std::uint8_t> sizes(kSizeBytes * rank);
  reader_.read_all(sizes);
  for (std::size_t i = 0; i < sizes.size(); i += kSizeBytes) {
    shape_.push_back(std::int64_t{sizes[i]} << 24 | std::int64_t{sizes[i + 1]} << 16 |
                     std::int64_t{sizes[i + 2]} << 8 | std::int64_t{sizes[i + 3]});
  }
  const std::string shape = join(shape_, " x ");
  const auto count = product_of(shape_, 1);
  if (!count || *count > std::numeric_limits<std::int64_t>::max() - header) {
    fail(str("its header says ", shape, " values, which is more than any file can hold"));
  }
  reader_.expect(header + *count,
                 str("a header of ", header, " and ", shape, *count == 1 ? " value" : " values"));
  reader_.check_size();
}

}  // namespace lockstep::formats
