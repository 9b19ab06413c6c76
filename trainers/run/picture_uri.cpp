#include "trainers/run/picture_uri.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ATen/ops/adaptive_avg_pool2d.h>

#include "framework/formats/image.h"
#include "framework/telemetry/tensor_image.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostPixels = 64;  // of a side

// RFC 4648
std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < left ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= left ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

std::string picture_uri(at::Tensor picture) {
  const std::int64_t most = std::max(picture.size(1), picture.size(2));
  if (most > kMostPixels) {
    const auto side = [&](std::int64_t pixels) {
      return std::max<std::int64_t>(pixels * kMostPixels / most, 1);
    };
    picture = at::adaptive_avg_pool2d(picture, {side(picture.size(1)), side(picture.size(2))});
  }
  return "data:image/png;base64," +
         base64(formats::encode_png(telemetry::image_of("a sample's picture", picture)));
}

}  // namespace lockstep
