#pragma once

#include <cstdint>

#include "framework/formats/image.h"

namespace lockstep::formats {

/// The picture scaled to height x width, by a triangle filter as wide as the scale is (bilinear
/// with antialiasing), first along rows, then along columns. In the arithmetic of Pillow's
/// Image.resize with BILINEAR (Resample.c): weights of 22 bits, rounded to bytes after each
/// direction. ValueError for sizes that are not 1 … 65535, and a picture that is not as Image says.
[[nodiscard]] Image resize(const Image& image, std::int64_t height, std::int64_t width);

/// Where a part begins that can't be in the middle, half a pixel off.
enum class CropRounding {
  even,  ///< at the next even number, as torchvision's CenterCrop
  down   ///< half a pixel to the top and the left
};

/// The middle height x width of a picture. ValueError for sizes that are not 1 … the picture's.
[[nodiscard]] Image center_crop(const Image& image, std::int64_t height, std::int64_t width,
                                CropRounding rounding = CropRounding::even);

}  // namespace lockstep::formats
