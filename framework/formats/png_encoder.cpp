#include <png.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/formats/image.h"

namespace lockstep::formats {

std::string encode_png(const Image& image) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::string bytes(size, '\0');
  require<Error>(png_image_write_to_memory(&header, bytes.data(), &size, /*convert_to_8_bit=*/0,
                                           image.pixels.data(), /*row_stride=*/0, nullptr) != 0,
                 "a picture of ", image.width, "x", image.height,
                 " can't be written as PNG: ", header.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace lockstep::formats
