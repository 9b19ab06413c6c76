#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/formats/content_reader.h"

namespace lockstep::formats {

/// A file of the IDX format, the one of MNIST: two zero bytes, the element type (0x08, unsigned
/// byte, is the only one read), the number of dimensions, each dimension's size as a big-endian
/// 32-bit number, then the values to the end of the file. Plain or gzip, whatever its name.
///
/// Throws DataError, naming the file, if it is missing, unreadable, not in this format, of other
/// than `dimensions` dimensions, shorter or longer than its header says, or damaged according to
/// gzip's checksum. A wrong size of the file itself is found before any value is read.
class IdxFile {
 public:
  /// Reads the header. `dimensions` is 1 … 255.
  IdxFile(const std::string& path, std::int64_t dimensions);

  [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return shape_; }

  /// The values, row-major. To be called once.
  [[nodiscard]] std::vector<std::uint8_t> read_values() { return reader_.read_rest(); }

  /// Throws the DataError that names the file and says `rule`, which its shape breaks.
  [[noreturn]] void fail(const std::string& rule) const { reader_.fail(rule); }

 private:
  ContentReader reader_;
  std::vector<std::int64_t> shape_;
};

}  // namespace lockstep::formats
