#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Small files of the formats that framework/formats/ reads, as bytes.

/// A record of CIFAR-10 whose byte i is shift + 7 i, modulo 256.
[[nodiscard]] std::string cifar10_record(int label, int shift);

/// A .npy file with this header, whatever it is.
[[nodiscard]] std::string npy_of_header(const std::string& header, const std::string& data,
                                        int version = 1);
/// A .npy file as NumPy writes it. `shape` as Python prints it.
[[nodiscard]] std::string npy_file(const std::string& descr, bool fortran_order,
                                   const std::string& shape, const std::string& data,
                                   int version = 1);

}  // namespace lockstep::testing
