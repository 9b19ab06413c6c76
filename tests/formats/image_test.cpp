#include "framework/formats/image.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "framework/base/errors.h"
#include "framework/formats/exif.h"
#include "tests/catch.h"
#include "tests/formats/sample_files.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/message_of.h"
#include "tests/support/occurrences.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
using formats::decode_image;
using formats::Image;
using formats::ImageOptions;
using testing::jpeg_file;
using testing::message_of;
using testing::png_chunk;
using testing::png_file;

namespace {

using Pixels = std::vector<std::uint8_t>;

Image decode(const std::string& bytes, const ImageOptions& options = {}) {
  return decode_image({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()},
                      "picture", options);
}

std::string decode_error(const std::string& bytes, const ImageOptions& options = {}) {
  const std::string message = message_of<DataError>([&] { (void)decode(bytes, options); });
  const std::string prefix = "data file 'picture': ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

std::string text_of(const Pixels& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Slopes, which JPEG keeps well, in each channel in another direction.
Pixels slopes(std::size_t height, std::size_t width, std::size_t channels) {
  Pixels pixels;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t place = c == 0 ? x * 4 : c == 1 ? y * 5 : c == 2 ? x + y : x * 2 + y;
        pixels.push_back(static_cast<std::uint8_t>(40 + place));
      }
    }
  }
  return pixels;
}

int largest_difference(const Pixels& a, const Pixels& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Rows for png_file() of a picture of bytes, without a filter.
std::string png_rows(const Pixels& pixels, std::size_t row_bytes) {
  std::string rows;
  for (std::size_t at = 0; at < pixels.size(); at += row_bytes) {
    rows += '\0' + text_of(pixels).substr(at, row_bytes);
  }
  return rows;
}

std::string slopes_png() {
  return png_file({.width = 31, .height = 17}, png_rows(slopes(17, 31, 3), 93));
}

}  // namespace

TEST_CASE("a PNG picture has the bytes of its file, whatever their kind") {
  const Pixels colors{1, 2, 3, 250, 128, 0, 7, 8, 9, 10, 11, 12};
  CHECK(decode(png_file({.width = 2, .height = 2}, png_rows(colors, 6))) == Image{2, 2, 3, colors});
  CHECK(decode(png_file({.width = 3, .height = 1, .color_type = 0}, std::string("\0\5\6\7", 4)),
               {.channels = 1}) == Image{1, 3, 1, {5, 6, 7}});
  CHECK(decode(png_file({.width = 3, .height = 1, .color_type = 0}, std::string("\0\5\6\7", 4))) ==
        Image{1, 3, 3, {5, 5, 5, 6, 6, 6, 7, 7, 7}});
  // A filter: each byte is the difference to the one a pixel before.
  CHECK(decode(png_file({.width = 2, .height = 1}, "\1\1\2\3\4\5\6")) ==
        Image{1, 2, 3, {1, 2, 3, 5, 7, 9}});
  // Bits: 10110 as one bit each, 0 1 2 3 as two, 15 and 1 as four.
  const auto gray = [](std::uint32_t width, int bits, const Pixels& row) {
    return decode(
               png_file({.width = width, .bits = bits, .color_type = 0}, png_rows(row, row.size())),
               {.channels = 1})
        .pixels;
  };
  CHECK(gray(5, 1, {0xb0}) == Pixels{255, 0, 255, 255, 0});
  CHECK(gray(4, 2, {0x1b}) == Pixels{0, 85, 170, 255});
  CHECK(gray(2, 4, {0xf1}) == Pixels{255, 17});
  // 16 bits: 0x8080 is 128 of 255; 0x00ff and 0x0080 are nearest to 1 and 0.
  CHECK(gray(4, 16, {0x80, 0x80, 0xff, 0xff, 0x00, 0xff, 0x00, 0x80}) == Pixels{128, 255, 1, 0});
  // Alpha is dropped: what is transparent keeps its colour.
  CHECK(decode(png_file({.width = 2, .height = 1, .color_type = 6},
                        std::string("\0\1\2\3\0\4\5\6\xff", 9))) ==
        Image{1, 2, 3, {1, 2, 3, 4, 5, 6}});
  CHECK(decode(png_file({.width = 2, .height = 1, .color_type = 4}, std::string("\0\1\0\4\5", 5)),
               {.channels = 1}) == Image{1, 2, 1, {1, 4}});
  const std::string palette = png_chunk("PLTE", "\1\2\3\4\5\6\7\x8\x9");
  const testing::PngHeader indexed{.width = 3, .height = 1, .color_type = 3};
  for (const std::string& transparent :
       {std::string(), png_chunk("tRNS", std::string("\0\x80", 2))}) {
    CHECK(decode(png_file(indexed, std::string("\0\2\0\1", 4), palette + transparent)) ==
          Image{1, 3, 3, {7, 8, 9, 1, 2, 3, 4, 5, 6}});
  }
  // Adam7: the passes of a picture of 3 x 2 have pixels (0,0); (0,2); (0,1); row 1.
  const std::string passes("\0\1\0\3\0\2\0\4\5\6", 10);
  CHECK(decode(png_file({.width = 3, .height = 2, .color_type = 0, .interlace = 1}, passes),
               {.channels = 1}) == Image{2, 3, 1, {1, 2, 3, 4, 5, 6}});
}

TEST_CASE("a picture written as PNG is read as it was") {
  for (const std::int64_t channels : {1, 3}) {
    const Image image{17, 31, channels, slopes(17, 31, static_cast<std::size_t>(channels))};
    CHECK(decode(formats::encode_png(image), {.channels = channels}) == image);
  }
  CHECK_THROWS_AS(formats::encode_png({0, 0, 1, {}}), Error);
}

TEST_CASE("gamma, profiles and texts of a PNG file change nothing") {
  const std::string chunks =
      png_chunk("gAMA", std::string("\0\1\x86\xa0", 4)) + png_chunk("iCCP", "broken") +
      png_chunk("tEXt", std::string(5000, 'x')) + png_chunk("zzZz", "unknown");
  const Pixels colors{1, 2, 3, 250, 128, 0};
  CHECK(decode(png_file({.width = 2, .height = 1}, png_rows(colors, 6), chunks)) ==
        Image{1, 2, 3, colors});
}

TEST_CASE("colour becomes gray by luma") {
  const Pixels colors{255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255};
  // round(255 * 0.299), 255 * 0.587, 255 * 0.114
  CHECK(decode(png_file({.width = 4, .height = 1}, png_rows(colors, 12)), {.channels = 1}).pixels ==
        Pixels{76, 150, 29, 255});
}

TEST_CASE("a JPEG picture is nearly what was written") {
  for (const bool progressive : {false, true}) {
    const Pixels colors = slopes(17, 31, 3);
    const Image image =
        decode(jpeg_file({.width = 31, .height = 17, .progressive = progressive}, colors));
    CHECK(image.height == 17);
    CHECK(image.width == 31);
    CHECK(image.channels == 3);
    CHECK(largest_difference(image.pixels, colors) <= 3);
    const Pixels grays = slopes(17, 31, 1);
    const std::string gray =
        jpeg_file({.width = 31, .height = 17, .channels = 1, .progressive = progressive}, grays);
    CHECK(largest_difference(decode(gray, {.channels = 1}).pixels, grays) <= 2);
    const Image three = decode(gray);
    for (std::size_t i = 0; i < three.pixels.size(); ++i) {
      REQUIRE(three.pixels[i] == decode(gray, {.channels = 1}).pixels[i / 3]);
    }
  }
}

TEST_CASE("inks of a CMYK JPEG become colours") {
  const Pixels inks = slopes(8, 8, 4);
  Pixels colors;
  for (std::size_t i = 0; i < inks.size(); i += 4) {
    for (std::size_t c = 0; c < 3; ++c) {
      colors.push_back(static_cast<std::uint8_t>(std::lround(inks[i + c] * inks[i + 3] / 255.0)));
    }
  }
  const Image image = decode(jpeg_file({.width = 8, .height = 8, .channels = 4}, inks));
  CHECK(image.channels == 3);
  CHECK(largest_difference(image.pixels, colors) <= 3);
}

TEST_CASE("a picture cut short anywhere is an error, and nothing is printed") {
  const testing::CapturedStderr log;
  const Pixels colors = slopes(17, 31, 3);
  std::vector<std::string> kept_whole;
  for (const std::string& whole :
       {slopes_png(), jpeg_file({.width = 31, .height = 17}, colors),
        jpeg_file({.width = 31, .height = 17, .progressive = true}, colors)}) {
    for (std::size_t kept = 0; kept < whole.size(); ++kept) {
      const std::string error = decode_error(whole.substr(0, kept));
      if (error == "no error" || error.starts_with("an error of another type")) {
        kept_whole.push_back(std::to_string(kept) + ": " + error);
      }
    }
  }
  CHECK(kept_whole == std::vector<std::string>{});
  CHECK(log.text().empty());
}

TEST_CASE("a damaged picture is an error with the library's reason") {
  std::string png = slopes_png();
  png[png.size() - 14] = static_cast<char>(png[png.size() - 14] ^ 1);  // IDAT's checksum
  CHECK_THAT(decode_error(png),
             ContainsSubstring("its PNG data cannot be decoded: ") && ContainsSubstring("CRC"));
  CHECK_THAT(decode_error(png_file({.width = 2, .height = 2}, "\1\1\2\3\4\5\6")),
             ContainsSubstring("Not enough image data"));
  CHECK_THAT(decode_error(png_file({.width = 1, .height = 1, .bits = 5}, "\1\1")),
             ContainsSubstring("IHDR"));
  const std::string jpeg = jpeg_file({.width = 31, .height = 17}, slopes(17, 31, 3));
  CHECK_THAT(decode_error(jpeg.substr(0, jpeg.size() - 2)),
             ContainsSubstring("its JPEG data cannot be decoded: Premature end"));
}

TEST_CASE("a JPEG may have a scan for each channel, but not very many") {
  const Pixels colors = slopes(17, 31, 3);
  std::string file = jpeg_file({.width = 31, .height = 17, .separate_scans = true}, colors);
  CHECK(largest_difference(decode(file).pixels, colors) <= 3);
  const std::size_t first = file.find("\xff\xda");
  const std::string scan = file.substr(first, file.find("\xff\xda", first + 1) - first);
  for (int i = 0; i < 50; ++i) file.insert(first, scan);
  CHECK(largest_difference(decode(file).pixels, colors) <= 3);
  for (int i = 0; i < 50; ++i) file.insert(first, scan);
  CHECK(decode_error(file) == "its JPEG data cannot be decoded: it has more than 100 scans");
}

TEST_CASE("what is no PNG or JPEG, or a JPEG of a rare kind, is refused") {
  CHECK(decode_error("") == "it is empty, but must be a PNG or a JPEG picture");
  CHECK(decode_error("<html>") == "it is neither a PNG nor a JPEG picture by its first bytes");
  // As people rename them.
  const std::vector<std::pair<std::string, std::string>> others{
      {"GIF", "GIF89a"},
      {"WebP", std::string("RIFF\x1a\0\0\0WEBPVP8 ", 16)},
      {"BMP", "BM6"},
      {"TIFF", std::string("II*\0\b", 5)},
      {"TIFF", std::string("MM\0*\0", 5)},
      {"AVIF", std::string("\0\0\0\x1c"
                           "ftypavif",
                           12)},
      {"HEIC", std::string("\0\0\0\x18"
                           "ftypheic",
                           12)}};
  for (const auto& [kind, bytes] : others) {
    CHECK(decode_error(bytes) == "it is a " + kind +
                                     " picture by its first bytes, but only PNG and JPEG can be "
                                     "read");
  }
  const std::string arithmetic =
      jpeg_file({.width = 8, .height = 8, .arithmetic = true}, slopes(8, 8, 3));
  CHECK(decode_error(arithmetic) == "it is a JPEG of arithmetic coding, which cannot be read");
  // libjpeg-turbo reads these from version 3 on, and calls this one damaged.
  std::string lossless = jpeg_file({.width = 8, .height = 8}, slopes(8, 8, 3));
  lossless[lossless.find("\xff\xc0") + 1] = '\xc3';
#if LIBJPEG_TURBO_VERSION_NUMBER < 3000000
  CHECK(decode_error(lossless) == "its JPEG data cannot be decoded: it is a lossless JPEG (SOF3)");
#endif
  const testing::TemporaryFolder folder;
  CHECK(message_of<DataError>([&] { (void)formats::read_image(folder.path("missing")); }) ==
        "data file '" + folder.path("missing") + "': there is no such file");
  CHECK_THROWS_AS(decode(slopes_png(), {.channels = 2}), ValueError);
  CHECK(formats::read_image(folder.write("a.png", slopes_png())) == decode(slopes_png()));
}

TEST_CASE("a picture's size is checked before it is decoded") {
  std::string jpeg = jpeg_file({.width = 31, .height = 17}, slopes(17, 31, 3));
  const std::size_t frame = jpeg.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  CHECK(decode_error(png_file({.width = 8192, .height = 8193}, "x")) ==
        "it has 8193 x 8192 pixels, more than the limit of 67108864");
  jpeg.replace(frame + 5, 4, "\x20\x01\x20\x00", 4);
  CHECK(decode_error(jpeg) == "it has 8193 x 8192 pixels, more than the limit of 67108864");
  // Sizes up to the limit that the bytes of the file can't make.
  CHECK_THAT(decode_error(png_file({.width = 8192, .height = 8192}, "x")),
             ContainsSubstring("bytes can't hold 8192 x 8192 pixels"));
  jpeg.replace(frame + 5, 4, "\x1f\x40\x1f\x40");
  CHECK_THAT(decode_error(jpeg), ContainsSubstring("bytes can't hold 8000 x 8000 pixels"));
}

TEST_CASE("a picture is turned upright as its EXIF data say") {
  // 1 2 3 over 4 5 6, as Pillow's ImageOps.exif_transpose turns it.
  const std::vector<Image> expected{{2, 3, 1, {1, 2, 3, 4, 5, 6}}, {2, 3, 1, {3, 2, 1, 6, 5, 4}},
                                    {2, 3, 1, {6, 5, 4, 3, 2, 1}}, {2, 3, 1, {4, 5, 6, 1, 2, 3}},
                                    {3, 2, 1, {1, 4, 2, 5, 3, 6}}, {3, 2, 1, {4, 1, 5, 2, 6, 3}},
                                    {3, 2, 1, {6, 3, 5, 2, 4, 1}}, {3, 2, 1, {3, 6, 2, 5, 1, 4}}};
  const testing::PngHeader gray{.width = 3, .height = 2, .color_type = 0};
  const std::string rows("\0\1\2\3\0\4\5\6", 8);
  for (const bool is_big_endian : {false, true}) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const std::string exif = testing::exif_data(orientation, is_big_endian);
      const std::string before = png_file(gray, rows, png_chunk("eXIf", exif));
      const Image& upright = expected[static_cast<std::size_t>(orientation - 1)];
      INFO(orientation << (is_big_endian ? " MM" : " II"));
      CHECK(decode(before, {.channels = 1}) == upright);
      CHECK(decode(before, {.channels = 1, .exif = false}) == expected[0]);
      std::string behind = png_file(gray, rows);
      behind.insert(behind.size() - 12, png_chunk("eXIf", exif));
      CHECK(decode(behind, {.channels = 1}) == upright);

      // Slopes of several blocks, to tell the sides apart.
      const std::string jpeg = jpeg_file({.width = 31, .height = 17}, slopes(17, 31, 3));
      const Image turned = decode(testing::with_exif(jpeg, exif));
      const Image plain = decode(jpeg);
      CHECK(turned.height == (orientation < 5 ? 17 : 31));
      CHECK(turned == formats::upright(plain, static_cast<formats::Orientation>(orientation)));
      CHECK(decode(testing::with_exif(jpeg, exif), {.exif = false}) == plain);
    }
  }
}

TEST_CASE("EXIF data that are damaged or say nothing turn no picture") {
  const std::string jpeg = jpeg_file({.width = 31, .height = 17}, slopes(17, 31, 3));
  const Image plain = decode(jpeg);
  const std::string exif = testing::exif_data(6);
  CHECK(decode(testing::with_exif(jpeg, exif)) != plain);
  for (std::size_t kept = 0; kept < exif.size() - 6; ++kept) {
    CHECK(decode(testing::with_exif(jpeg, exif.substr(0, kept))) == plain);
  }
  for (const int orientation : {0, 9, 255, 65535}) {
    CHECK(decode(testing::with_exif(jpeg, testing::exif_data(orientation))) == plain);
  }
  const auto damaged = [&](std::size_t at, const std::string& bytes) {
    std::string changed = exif;
    return decode(testing::with_exif(jpeg, changed.replace(at, bytes.size(), bytes)));
  };
  CHECK(damaged(0, "XX") == plain);
  CHECK(damaged(2, "\53") == plain);               // not 42
  CHECK(damaged(4, "\xff\xff\xff\xff") == plain);  // the directory is nowhere
  CHECK(damaged(24, "\2") == plain);               // a text
  CHECK(damaged(26, "\7") == plain);               // seven of it
  CHECK(damaged(8, "\xff\xff") != plain);          // more entries than there are
  // A PNG file's with another checksum are passed over, as libpng does.
  std::string chunk = png_chunk("eXIf", exif);
  chunk.back() = static_cast<char>(chunk.back() ^ 1);
  const std::string rows("\0\1\2\3\0\4\5\6", 8);
  CHECK(decode(png_file({.width = 3, .height = 2, .color_type = 0}, rows, chunk),
               {.channels = 1}) == Image{2, 3, 1, {1, 2, 3, 4, 5, 6}});
  // A scan's bytes are no segments.
  CHECK(formats::orientation_of({}) == formats::Orientation::upright);
  const std::vector<std::uint8_t> start{0xff, 0xd8, 0xff, 0xff};
  for (std::size_t kept = 0; kept <= start.size(); ++kept) {
    CHECK(formats::orientation_of(std::span(start).first(kept)) == formats::Orientation::upright);
  }
}

TEST_CASE("a JPEG that is odd but whole is read with a warning") {
  const std::string jpeg = jpeg_file({.width = 31, .height = 17}, slopes(17, 31, 3));
  // Behind a scan's three channels: the coefficients from 0 to 63. Samsung's phones write 0 and 0.
  std::string odd = jpeg;
  const std::size_t scan = odd.find("\xff\xda");
  REQUIRE(odd[scan + 12] == 63);
  odd[scan + 12] = 0;
  const testing::CapturedStderr log;
  CHECK(decode(odd) == decode(jpeg));
  CHECK(decode(odd) == decode(jpeg));
  CHECK(testing::count(log.text(), "\n") <= 1);  // once in a process
  if (!log.text().empty()) {
    CHECK_THAT(log.text(), ContainsSubstring("picture 'picture': Invalid SOS parameters for "
                                             "sequential JPEG: that changes no pixel (said once)"));
  }
}
