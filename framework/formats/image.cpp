#include "framework/formats/image.h"

#include <array>
#include <string_view>
#include <utility>

#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/exif.h"

namespace lockstep::formats {
namespace {

constexpr std::string_view kPngStart = "\x89PNG\r\n\x1a\n";
constexpr std::string_view kJpegStart = "\xff\xd8\xff";

// What people rename to .jpg: a kind of picture that is not read, by its bytes from `offset` on.
struct OtherKind {
  std::string_view name;
  std::size_t offset;
  std::string_view bytes;
};
constexpr std::array<OtherKind, 8> kOtherKinds{{{"GIF", 0, "GIF8"},
                                                {"WebP", 8, "WEBP"},
                                                {"BMP", 0, "BM"},
                                                {"TIFF", 0, {"II*\0", 4}},
                                                {"TIFF", 0, {"MM\0*", 4}},
                                                {"AVIF", 4, "ftypavif"},
                                                {"HEIC", 4, "ftypheic"},
                                                {"HEIC", 4, "ftypmif1"}}};

[[noreturn]] void refuse_kind(std::span<const std::uint8_t> bytes, const std::string& name) {
  if (bytes.empty()) fail_file(name, "it is empty, but must be a PNG or a JPEG picture");
  for (const OtherKind& kind : kOtherKinds) {
    if (!has_at(bytes, kind.offset, kind.bytes)) continue;
    fail_file(name, str("it is a ", kind.name,
                        " picture by its first bytes, but only PNG and JPEG can be read"));
  }
  fail_file(name, "it is neither a PNG nor a JPEG picture by its first bytes");
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
  return decode_image(open_data(path).content().bytes, path, options);
}

void check_size(const Image& image, std::size_t least, std::size_t bytes, const std::string& name) {
  // What decoding takes in memory, a few bytes a pixel, follows from what a file's first bytes say.
  constexpr std::int64_t kMostPixels = std::int64_t{64} << 20;
  const bool is_large = image.height > kMostPixels / image.width;
  if (!is_large && least <= bytes) return;
  const std::string pixels = str(image.height, " x ", image.width, " pixels");
  if (is_large) fail_file(name, str("it has ", pixels, ", more than the limit of ", kMostPixels));
  fail_file(name, str("it is cut short: its ", bytes, " bytes can't hold ", pixels));
}

Image decode_image(std::span<const std::uint8_t> bytes, const std::string& name,
                   const ImageOptions& options) {
  require(options.channels == 1 || options.channels == 3, "image: channels is ", options.channels,
          ", but must be 1 or 3");
  const bool is_png = has_at(bytes, 0, kPngStart);
  if (!is_png && !has_at(bytes, 0, kJpegStart)) refuse_kind(bytes, name);
  const auto decode = is_png ? decode_png : decode_jpeg;
  Image image = with_channels(decode(bytes, name), options.channels);
  return options.exif ? upright(std::move(image), orientation_of(bytes)) : image;
}

}  // namespace lockstep::formats
