#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::formats {

/// A picture of bytes: gray with one channel, or red, green and blue with three.
struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::vector<std::uint8_t> pixels = {};  ///< (height, width, channels), row-major

  bool operator==(const Image&) const = default;
};

struct ImageOptions {
  /// 1 or 3: what the result has, whatever the file has.
  std::int64_t channels = 3;
  /// Turn and mirror the picture as its EXIF data say, so that it is upright.
  bool exif = true;
};

/// The picture in a PNG or JPEG file, which its first bytes tell apart, not its name. The values
/// are those of the file, as Pillow and torchvision give them: gamma and colour profiles are not
/// applied. Alpha is dropped, 16 bits are rounded to 8, palettes are looked up, CMYK is taken as
/// Adobe writes it (inverted), and colour becomes gray by ITU-R 601 luma.
///
/// DataError, naming the file, for what is missing, another format, damaged, cut short or of more
/// than 2^26 pixels, and for JPEGs of arithmetic coding, of other than 8 bits, or of foreign colour
/// spaces. What is odd in a JPEG but changes no pixel is a warning, once in a process for each
/// kind. ValueError for options that are not as above. Any thread.
[[nodiscard]] Image read_image(const std::string& path, const ImageOptions& options = {});
/// The same for a file's bytes. Messages call it `name`.
[[nodiscard]] Image decode_image(std::span<const std::uint8_t> bytes, const std::string& name,
                                 const ImageOptions& options = {});

/// Its decoders: the picture in a file's bytes, gray or in colour as the file is.
[[nodiscard]] Image decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name);
[[nodiscard]] Image decode_png(std::span<const std::uint8_t> bytes, const std::string& name);
/// For these: DataError for a picture of too many pixels, and for one that takes `least` bytes of a
/// file at least, which has `bytes`.
void check_size(const Image& image, std::size_t least, std::size_t bytes, const std::string& name);

/// The bytes of a PNG file of the picture. Error if they can't be made. Any thread.
[[nodiscard]] std::string encode_png(const Image& image);

}  // namespace lockstep::formats
