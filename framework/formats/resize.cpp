#include "framework/formats/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "framework/base/text.h"

namespace lockstep::formats {
namespace {

constexpr int kWeightBits = 22;
constexpr std::int64_t kMostSide = 65535;

void check_image(const char* operation, const Image& image) {
  require(
      image.height >= 1 && image.width >= 1 && (image.channels == 1 || image.channels == 3) &&
          std::ssize(image.pixels) == image.height * image.width * image.channels,
      operation, ": the picture has ", image.height, " x ", image.width, " pixels of ",
      image.channels, " channels and ", image.pixels.size(),
      " bytes, but must have sides of at least 1, 1 or 3 channels and as many bytes as these make");
}

// The weights of the old pixels that one new pixel is made of.
struct Taps {
  std::size_t first = 0;  // old pixel
  std::vector<std::int32_t> weights;
};

Taps taps_of(std::int64_t pixel, std::int64_t old_size, std::int64_t new_size) {
  const double scale = static_cast<double>(old_size) / static_cast<double>(new_size);
  const double support = std::max(scale, 1.0);
  const double center = (static_cast<double>(pixel) + 0.5) * scale;
  const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
  const auto end = std::min(old_size, static_cast<std::int64_t>(center + support + 0.5));
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t i = first; i < end; ++i) {
    const double distance = std::abs((static_cast<double>(i) - center + 0.5) * (1.0 / support));
    weights.push_back(std::max(0.0, 1.0 - distance));
    sum += weights.back();
  }
  Taps taps{static_cast<std::size_t>(first), {}};
  for (const double weight : weights) {
    taps.weights.push_back(static_cast<std::int32_t>(0.5 + weight / sum * (1 << kWeightBits)));
  }
  return taps;
}

// Scales the middle one of the three dimensions (outer, old_size, inner).
std::vector<std::uint8_t> scale_dimension(const std::vector<std::uint8_t>& from, std::size_t outer,
                                          std::int64_t old_size, std::size_t inner,
                                          std::int64_t new_size) {
  const auto old_count = static_cast<std::size_t>(old_size);
  const auto new_count = static_cast<std::size_t>(new_size);
  std::vector<std::uint8_t> to(outer * new_count * inner);
  std::vector<Taps> taps;
  for (std::int64_t i = 0; i < new_size; ++i) taps.push_back(taps_of(i, old_size, new_size));
  std::vector<std::int32_t> sums(inner);
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t pixel = 0; pixel < new_count; ++pixel) {
      std::ranges::fill(sums, 1 << (kWeightBits - 1));  // rounds
      const std::uint8_t* source = from.data() + (o * old_count + taps[pixel].first) * inner;
      for (const std::int32_t weight : taps[pixel].weights) {
        for (std::size_t i = 0; i < inner; ++i) sums[i] += weight * source[i];
        source += inner;
      }
      std::uint8_t* const target = to.data() + (o * new_count + pixel) * inner;
      for (std::size_t i = 0; i < inner; ++i) {
        target[i] = static_cast<std::uint8_t>(std::min(sums[i] >> kWeightBits, 255));
      }
    }
  }
  return to;
}

}  // namespace

Image resize(const Image& image, std::int64_t height, std::int64_t width) {
  check_image("resize", image);
  require(height >= 1 && width >= 1 && height <= kMostSide && width <= kMostSide,
          "resize: the new size is ", height, " x ", width, ", but its sides must be 1 ... ",
          kMostSide);
  Image result = image;
  const auto channels = static_cast<std::size_t>(image.channels);
  if (width != image.width) {
    result.pixels = scale_dimension(result.pixels, static_cast<std::size_t>(image.height),
                                    image.width, channels, width);
    result.width = width;
  }
  if (height != image.height) {
    result.pixels = scale_dimension(result.pixels, 1, image.height,
                                    static_cast<std::size_t>(width) * channels, height);
    result.height = height;
  }
  return result;
}

Image center_crop(const Image& image, std::int64_t height, std::int64_t width,
                  CropRounding rounding) {
  check_image("center_crop", image);
  require(height >= 1 && width >= 1 && height <= image.height && width <= image.width,
          "center_crop: ", height, " x ", width, " pixels can't be cut out of ", image.height,
          " x ", image.width);
  const auto begin_of = [&](std::int64_t left_over) {
    const std::int64_t down = left_over / 2;
    return rounding == CropRounding::even && left_over % 2 == 1 ? down + down % 2 : down;
  };
  const std::int64_t top = begin_of(image.height - height);
  const std::int64_t left = begin_of(image.width - width);
  Image result{height, width, image.channels, {}};
  result.pixels.reserve(static_cast<std::size_t>(height * width * image.channels));
  for (std::int64_t row = 0; row < height; ++row) {
    const auto begin = image.pixels.begin() + ((top + row) * image.width + left) * image.channels;
    result.pixels.insert(result.pixels.end(), begin, begin + width * image.channels);
  }
  return result;
}

}  // namespace lockstep::formats
