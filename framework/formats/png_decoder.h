#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "framework/formats/image.h"

namespace lockstep::formats {

/// The picture in a PNG file's bytes, gray or in colour as the file is. See read_image() for what
/// is done to it and what is refused.
[[nodiscard]] Image decode_png(std::span<const std::uint8_t> bytes, const std::string& name,
                               std::int64_t most_pixels);

}  // namespace lockstep::formats
