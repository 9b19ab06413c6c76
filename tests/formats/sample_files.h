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

/// What a PNG file's header says. Colour types: 0 gray, 2 colour, 3 palette, 4 gray and alpha, 6
/// colour and alpha.
struct PngHeader {
  std::uint32_t width = 1;
  std::uint32_t height = 1;
  int bits = 8;
  int color_type = 2;
  int interlace = 0;
};
/// A chunk of a PNG file, with its checksum.
[[nodiscard]] std::string png_chunk(const std::string& type, const std::string& data);
/// A PNG file. `rows` is what gets packed: each row with its filter's byte. `chunks` lie before it.
[[nodiscard]] std::string png_file(const PngHeader& header, const std::string& rows,
                                   const std::string& chunks = {});

/// How a JPEG file is written. Channels: 1 gray, 3 colour, 4 CMYK as Adobe has it.
struct JpegHeader {
  std::uint32_t width = 1;
  std::uint32_t height = 1;
  int channels = 3;
  bool progressive = false;
  bool arithmetic = false;
  bool separate_scans = false;  ///< one for each channel, of three
};
/// A JPEG file of these (height, width, channels) at the best quality.
[[nodiscard]] std::string jpeg_file(const JpegHeader& header,
                                    const std::vector<std::uint8_t>& pixels);

/// EXIF data that say an orientation, 1 to 8 as EXIF counts them, or any other number.
[[nodiscard]] std::string exif_data(int orientation, bool is_big_endian = false);
/// The JPEG file with these EXIF data.
[[nodiscard]] std::string with_exif(std::string jpeg, const std::string& exif);

}  // namespace lockstep::testing
