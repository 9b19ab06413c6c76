#pragma once

#include <cstdint>
#include <span>

#include "framework/formats/image.h"

namespace lockstep::formats {

/// How a camera says that it was held, by EXIF's tag Orientation.
enum class Orientation : std::uint8_t {
  upright = 1,
  mirrored = 2,      ///< left to right
  upside_down = 3,   ///< turned by half
  flipped = 4,       ///< top to bottom
  transposed = 5,    ///< mirrored at the diagonal from the top left
  turned_left = 6,   ///< is upright once turned clockwise by a quarter
  transversed = 7,   ///< mirrored at the other diagonal
  turned_right = 8,  ///< is upright once turned counterclockwise by a quarter
};

/// What the EXIF data of a JPEG or PNG file say, by its bytes: JPEG's first APP1 segment of EXIF,
/// PNG's chunk eXIf. Upright where there are none, or they are damaged: that is no reason to refuse
/// a picture. Any bytes may be given.
[[nodiscard]] Orientation orientation_of(std::span<const std::uint8_t> file);

/// The picture as it is upright, as Pillow's ImageOps.exif_transpose gives it.
[[nodiscard]] Image upright(Image image, Orientation orientation);

}  // namespace lockstep::formats
