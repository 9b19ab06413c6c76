#include "tests/formats/sample_files.h"

#include <array>
#include <cstdlib>

#include <jpeglib.h>
#include <zlib.h>

namespace lockstep::testing {
namespace {

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift & 0xffU);
  return bytes;
}

const Bytef* bytes_of(const std::string& text) {
  return reinterpret_cast<const Bytef*>(text.data());
}

}  // namespace

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

std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  const uLong checksum = crc32(0, bytes_of(checked), static_cast<uInt>(checked.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + checked +
         big_endian(static_cast<std::uint32_t>(checksum));
}

std::string png_file(const PngHeader& header, const std::string& rows, const std::string& chunks) {
  std::string fields = big_endian(header.width) + big_endian(header.height);
  for (const int field : {header.bits, header.color_type, 0, 0, header.interlace}) {
    fields += static_cast<char>(field);
  }
  uLongf size = compressBound(static_cast<uLong>(rows.size()));
  std::string packed(size, '\0');
  (void)compress(reinterpret_cast<Bytef*>(packed.data()), &size, bytes_of(rows),
                 static_cast<uLong>(rows.size()));
  packed.resize(size);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", fields) + chunks + png_chunk("IDAT", packed) +
         png_chunk("IEND", "");
}

std::string jpeg_file(const JpegHeader& header, const std::vector<std::uint8_t>& pixels) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = header.width;
  jpeg.image_height = header.height;
  jpeg.input_components = header.channels;
  jpeg.in_color_space = header.channels == 1   ? JCS_GRAYSCALE
                        : header.channels == 3 ? JCS_RGB
                                               : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  for (int i = 0; i < jpeg.num_components; ++i) {
    jpeg.comp_info[i].h_samp_factor = 1;
    jpeg.comp_info[i].v_samp_factor = 1;
  }
  if (header.arithmetic) jpeg.arith_code = TRUE;
  if (header.progressive) jpeg_simple_progression(&jpeg);
  // Fields: channels, which they are, all of their coefficients, in full.
  const std::array<jpeg_scan_info, 3> scans{
      {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}}};
  if (header.separate_scans) {
    jpeg.scan_info = scans.data();
    jpeg.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<std::uint8_t> row(std::size_t{header.width} *
                                static_cast<std::size_t>(header.channels));
  while (jpeg.next_scanline < jpeg.image_height) {
    const auto begin =
        pixels.begin() + static_cast<std::ptrdiff_t>(jpeg.next_scanline * row.size());
    row.assign(begin, begin + static_cast<std::ptrdiff_t>(row.size()));
    std::uint8_t* rows = row.data();
    (void)jpeg_write_scanlines(&jpeg, &rows, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string file(reinterpret_cast<const char*>(memory), size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return file;
}

std::string exif_data(int orientation, bool is_big_endian) {
  const auto number = [&](int value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) {
      text += static_cast<char>(value >> 8 * (is_big_endian ? bytes - 1 - i : i) & 0xff);
    }
    return text;
  };
  const auto entry = [&](int tag, int type, int value) {
    return number(tag, 2) + number(type, 2) + number(1, 4) + number(value, type == 3 ? 2 : 4) +
           (type == 3 ? number(0, 2) : "");
  };
  return (is_big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(2, 2) +
         entry(0x0100, 4, 640) + entry(0x0112, 3, orientation) + number(0, 4);
}

std::string with_exif(std::string jpeg, const std::string& exif) {
  const std::string content = std::string("Exif\0\0", 6) + exif;
  const auto length = static_cast<unsigned>(content.size() + 2);
  std::string segment = "\xff\xe1";
  segment += static_cast<char>(length >> 8);
  segment += static_cast<char>(length & 0xffU);
  return jpeg.insert(2, segment + content);
}

}  // namespace lockstep::testing
