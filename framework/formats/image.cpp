#include "framework/formats/image.h"

#include <algorithm>
#include <array>

#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/jpeg_decoder.h"
#include "framework/formats/png_decoder.h"

namespace lockstep::formats {
namespace {

constexpr std::array<std::uint8_t, 8> kPngStart{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::array<std::uint8_t, 3> kJpegStart{0xff, 0xd8, 0xff};

bool starts_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> start) {
  return bytes.size() >= start.size() && std::ranges::equal(bytes.first(start.size()), start);
}

// ITU-R 601 luma, in the arithmetic of Pillow.
std::uint8_t luma(const std::uint8_t* pixel) {
  return static_cast<std::uint8_t>(
      (pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U) >> 16U);
}

Image with_channels(Image image, std::int64_t channels) {
  if (image.channels == channels) return image;
  Image result{image.height, image.width, channels, {}};
  result.pixels.reserve(static_cast<std::size_t>(image.height * image.width * channels));
  for (std::size_t at = 0; at < image.pixels.size();
       at += static_cast<std::size_t>(image.channels)) {
    if (channels == 1) {
      result.pixels.push_back(luma(image.pixels.data() + at));
    } else {
      result.pixels.insert(result.pixels.end(), 3, image.pixels[at]);
    }
  }
  return result;
}

}  // namespace

Image read_image(const std::string& path, const ImageOptions& options) {
  const FileBytes bytes = DataFile(path).bytes();
  return decode_image(bytes.span(), path, options);
}

Image decode_image(std::span<const std::uint8_t> bytes, const std::string& name,
                   const ImageOptions& options) {
  require(options.channels == 1 || options.channels == 3, "image: channels is ", options.channels,
          ", but must be 1 or 3");
  require(options.most_pixels >= 1, "image: most_pixels is ", options.most_pixels,
          ", but must be at least 1");
  if (starts_with(bytes, kPngStart)) {
    return with_channels(decode_png(bytes, name, options.most_pixels), options.channels);
  }
  if (starts_with(bytes, kJpegStart)) {
    return with_channels(decode_jpeg(bytes, name, options.most_pixels), options.channels);
  }
  fail_file(name, "it is neither a PNG nor a JPEG picture by its first bytes");
}

}  // namespace lockstep::formats
