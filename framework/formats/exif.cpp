#include "framework/formats/exif.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

#include <zlib.h>

#include "framework/formats/data_file.h"

namespace lockstep::formats {
namespace {

using Bytes = std::span<const std::uint8_t>;

// A number in hostile bytes; none where they end before it does.
std::optional<std::uint32_t> number_at(Bytes bytes, std::uint64_t offset, std::size_t size,
                                       bool is_big_endian = true) {
  if (offset > bytes.size() || bytes.size() - offset < size) return std::nullopt;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < size; ++i) {
    number = number << 8 | bytes[offset + (is_big_endian ? i : size - 1 - i)];
  }
  return number;
}

// EXIF data are a TIFF file without a picture: byte order, 42, and where its first directory is. A
// directory is a count, then entries of 12 bytes: tag, type, how many values, and the value.
Orientation orientation_in_tiff(Bytes tiff) {
  constexpr std::uint32_t kOrientation = 0x0112;
  constexpr std::uint32_t kShort = 3;
  constexpr std::uint32_t kLong = 4;
  constexpr std::uint64_t kEntryBytes = 12;
  const bool is_big_endian = has_at(tiff, 0, "MM");
  if (!is_big_endian && !has_at(tiff, 0, "II")) return Orientation::upright;
  const auto at = [&](std::uint64_t offset, std::size_t size) {
    return number_at(tiff, offset, size, is_big_endian);
  };
  const auto directory = at(4, 4);
  if (at(2, 2) != 42U || !directory) return Orientation::upright;
  const std::uint32_t count = at(*directory, 2).value_or(0);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t entry = *directory + 2 + i * kEntryBytes;
    const auto tag = at(entry, 2);
    if (!tag) break;
    if (*tag != kOrientation) continue;
    const auto type = at(entry + 2, 2);
    const std::size_t size = type == kShort ? 2 : type == kLong ? 4 : 0;
    const auto value = size > 0 ? at(entry + 8, size) : std::nullopt;
    if (!value || *value < 1 || *value > 8 || at(entry + 4, 4) != 1U) break;
    return static_cast<Orientation>(*value);
  }
  return Orientation::upright;
}

// Segments of a marker and a length that counts itself, up to the picture's own data.
Bytes exif_in_jpeg(Bytes file) {
  constexpr std::string_view kName("Exif\0\0", 6);
  constexpr std::uint32_t kApp1 = 0xe1;
  constexpr std::uint32_t kStartOfScan = 0xda;
  constexpr std::uint32_t kEndOfImage = 0xd9;
  for (std::size_t at = 2;;) {
    while (number_at(file, at, 1) == 0xffU && number_at(file, at + 1, 1) == 0xffU) ++at;  // padding
    const auto marker = number_at(file, at + 1, 1);
    const auto length = number_at(file, at + 2, 2);
    if (number_at(file, at, 1) != 0xffU || !length || *length < 2) return {};
    if (marker == kStartOfScan || marker == kEndOfImage) return {};
    const Bytes segment =
        file.subspan(at + 4, std::min<std::size_t>(*length - 2, file.size() - at - 4));
    if (marker == kApp1 && has_at(segment, 0, kName)) return segment.subspan(kName.size());
    at += 2 + *length;
  }
}

// Chunks of a length, a type, data and a checksum of the latter two.
Bytes exif_in_png(Bytes file) {
  constexpr std::size_t kStart = 8;
  constexpr std::size_t kAround = 12;
  for (std::size_t at = kStart;;) {
    const auto length = number_at(file, at, 4);
    if (!length || file.size() - at < kAround + *length) return {};
    const Bytes checked = file.subspan(at + 4, 4 + *length);
    if (has_at(checked, 0, "eXIf")) {
      const uLong checksum = crc32(0, checked.data(), static_cast<uInt>(checked.size()));
      return checksum == number_at(file, at + 8 + *length, 4) ? checked.subspan(4) : Bytes();
    }
    at += kAround + *length;
  }
}

}  // namespace

Orientation orientation_of(Bytes file) {
  return orientation_in_tiff(has_at(file, 0, "\xff\xd8") ? exif_in_jpeg(file) : exif_in_png(file));
}

Image upright(Image image, Orientation orientation) {
  if (orientation == Orientation::upright) return image;
  const bool is_turned = orientation >= Orientation::transposed;
  const auto is_any = [&](std::initializer_list<Orientation> some) {
    return std::ranges::count(some, orientation) > 0;
  };
  // Whether the old row or column of a new pixel is counted from the other end.
  const bool from_bottom = is_any({Orientation::upside_down, Orientation::flipped,
                                   Orientation::turned_left, Orientation::transversed});
  const bool from_right = is_any({Orientation::mirrored, Orientation::upside_down,
                                  Orientation::transversed, Orientation::turned_right});
  Image made{is_turned ? image.width : image.height,
             is_turned ? image.height : image.width,
             image.channels,
             {}};
  made.pixels.reserve(image.pixels.size());
  for (std::int64_t y = 0; y < made.height; ++y) {
    for (std::int64_t x = 0; x < made.width; ++x) {
      std::int64_t row = is_turned ? x : y;
      std::int64_t column = is_turned ? y : x;
      if (from_bottom) row = image.height - 1 - row;
      if (from_right) column = image.width - 1 - column;
      const auto pixel = image.pixels.begin() + (row * image.width + column) * image.channels;
      made.pixels.insert(made.pixels.end(), pixel, pixel + image.channels);
    }
  }
  return made;
}

}  // namespace lockstep::formats
