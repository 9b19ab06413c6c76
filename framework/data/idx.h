#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// An array of unsigned bytes as an IDX file holds it, row-major: values.size() is the product of
/// the shape.
struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

/// Reads a file of the IDX format, the one of MNIST: two zero bytes, the element type (0x08,
/// unsigned byte, is the only one read), the number of dimensions, each dimension's size as a
/// big-endian 32-bit number, then the values to the end of the file. Plain or gzip, whatever its
/// name.
///
/// A file that is missing, unreadable, not in this format, of other than `dimensions` dimensions,
/// shorter or longer than its header says, or damaged according to gzip's checksum is a DataError
/// that names the file. Memory grows with what is really read, never with what a header promises.
/// `dimensions` is 1 … 255.
[[nodiscard]] IdxArray read_idx(const std::string& path, std::int64_t dimensions);

}  // namespace lockstep
