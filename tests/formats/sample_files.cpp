#include "tests/formats/sample_files.h"

namespace lockstep::testing {

std::string cifar10_record(int label, int shift) {
  std::string record(1, static_cast<char>(label));
  for (int i = 0; i < 3072; ++i) record += static_cast<char>((shift + 7 * i) % 256);
  return record;
}

std::string npy_of_header(const std::string& header, const std::string& data, int version) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte) {
    file += static_cast<char>(header.size() >> 8 * byte & 0xffU);
  }
  return file + header + data;
}

std::string npy_file(const std::string& descr, bool fortran_order, const std::string& shape,
                     const std::string& data, int version) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': " + (fortran_order ? "True" : "False") +
                       ", 'shape': " + shape + ", }";
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  return npy_of_header(header + '\n', data, version);
}

}  // namespace lockstep::testing
