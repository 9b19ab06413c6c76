#include "framework/formats/resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;
using formats::center_crop;
using formats::CropRounding;
using formats::Image;
using formats::resize;

namespace {

Image random_image(std::int64_t height, std::int64_t width, std::int64_t channels) {
  Image image{height, width, channels, {}};
  const Key key = Key(testing::seed()).fold("image");
  for (std::int64_t i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<std::uint8_t>(key.draw(static_cast<std::uint64_t>(i))));
  }
  return image;
}

Image row(std::vector<std::uint8_t> pixels) {
  const auto width = static_cast<std::int64_t>(pixels.size());
  return {1, width, 1, std::move(pixels)};
}

// The same by its definition: each new pixel is the mean of the old ones, weighted by a triangle.
std::vector<std::uint8_t> scaled(const std::vector<std::uint8_t>& pixels, std::size_t size) {
  const double scale = static_cast<double>(pixels.size()) / static_cast<double>(size);
  std::vector<std::uint8_t> result;
  for (std::size_t i = 0; i < size; ++i) {
    double sum = 0;
    double weights = 0;
    for (std::size_t j = 0; j < pixels.size(); ++j) {
      const double distance =
          std::abs((static_cast<double>(j) + 0.5) - (static_cast<double>(i) + 0.5) * scale);
      const double weight = std::max(0.0, 1 - distance / std::max(1.0, scale));
      sum += weight * pixels[j];
      weights += weight;
    }
    result.push_back(static_cast<std::uint8_t>(std::floor(sum / weights + 0.5)));
  }
  return result;
}

}  // namespace

TEST_CASE("halving and doubling a row have the weights of a triangle") {
  // Inside: (1 3 3 1) / 8. At the ends: (3 3 1) / 7.
  CHECK(resize(row({0, 80, 160, 80, 0, 0}), 1, 3).pixels ==
        std::vector<std::uint8_t>{57, 100, 11});  // 400 / 7, 800 / 8, 80 / 7
  // Inside: (1 3) / 4 and (3 1) / 4. At the ends: the pixel there.
  CHECK(resize(row({0, 80, 160}), 1, 6).pixels ==
        std::vector<std::uint8_t>{0, 20, 60, 100, 140, 160});
  CHECK(resize(row({10, 20}), 1, 1).pixels == std::vector<std::uint8_t>{15});
  CHECK(resize(row({7}), 1, 3).pixels == std::vector<std::uint8_t>{7, 7, 7});
}

TEST_CASE("a resized row is what the definition says, for any two sizes") {
  INFO("seed " << testing::seed());
  for (const std::int64_t from : {1, 2, 3, 5, 16, 100}) {
    for (const std::int64_t to : {1, 2, 3, 4, 7, 33, 100, 150}) {
      const Image image = random_image(1, from, 1);
      const Image result = resize(image, 1, to);
      const auto expected = scaled(image.pixels, static_cast<std::size_t>(to));
      REQUIRE(result.pixels.size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO(from << " to " << to << " at " << i);
        CHECK(std::abs(result.pixels[i] - expected[i]) <= 1);  // a half may go to either side
      }
    }
  }
}

TEST_CASE("columns are resized as rows are, and channels do not mix") {
  INFO("seed " << testing::seed());
  const Image image = random_image(9, 1, 1);
  Image turned = image;
  std::swap(turned.height, turned.width);
  CHECK(resize(image, 4, 1).pixels == resize(turned, 1, 4).pixels);

  const Image colors = random_image(13, 11, 3);
  const Image resized = resize(colors, 5, 17);
  CHECK(resized.height == 5);
  CHECK(resized.width == 17);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    Image one{13, 11, 1, {}};
    for (std::size_t i = channel; i < colors.pixels.size(); i += 3) {
      one.pixels.push_back(colors.pixels[i]);
    }
    const Image alone = resize(one, 5, 17);
    for (std::size_t i = 0; i < alone.pixels.size(); ++i) {
      REQUIRE(alone.pixels[i] == resized.pixels[3 * i + channel]);
    }
  }
  CHECK(resize(colors, 13, 11) == colors);
  const Image white{6, 5, 3, std::vector<std::uint8_t>(90, 255)};
  CHECK(std::ranges::count(resize(white, 4, 8).pixels, 255) == 96);
}

TEST_CASE("the middle of a picture is cut out") {
  Image image{4, 5, 3, {}};
  for (int i = 0; i < 60; ++i) image.pixels.push_back(static_cast<std::uint8_t>(i));
  CHECK(center_crop(image, 2, 1) == Image{2, 1, 3, {21, 22, 23, 36, 37, 38}});
  CHECK(center_crop(image, 1, 2) == Image{1, 2, 3, {36, 37, 38, 39, 40, 41}});
  CHECK(center_crop(image, 1, 2, CropRounding::down) == Image{1, 2, 3, {18, 19, 20, 21, 22, 23}});
  CHECK(center_crop(image, 4, 5) == image);
}

TEST_CASE("half a pixel goes to the even side, as torchvision's CenterCrop rounds") {
  // int(round((size - 2) / 2)) in Python.
  const std::vector<std::uint8_t> expected{0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5};
  for (std::uint8_t i = 0; i < expected.size(); ++i) {
    std::vector<std::uint8_t> pixels;
    for (std::uint8_t x = 0; x < i + 2; ++x) pixels.push_back(x);
    CHECK(int{center_crop(row(pixels), 1, 2).pixels[0]} == expected[i]);
    CHECK(center_crop(row(pixels), 1, 2, CropRounding::down).pixels[0] == i / 2);
  }
}

TEST_CASE("sizes that a picture can't have or be cut to are ValueErrors") {
  const Image image = random_image(4, 5, 3);
  for (const std::int64_t side : {0, -1, 65536}) {
    CHECK_THROWS_AS(resize(image, side, 3), ValueError);
    CHECK_THROWS_AS(resize(image, 3, side), ValueError);
    CHECK_THROWS_AS(center_crop(image, side, 3), ValueError);
    CHECK_THROWS_AS(center_crop(image, 3, side), ValueError);
  }
  CHECK_THROWS_WITH(center_crop(image, 4, 6),
                    "center_crop: 4 x 6 pixels can't be cut out of 4 x 5");
  Image wrong = image;
  wrong.pixels.pop_back();
  CHECK_THROWS_AS(resize(wrong, 2, 2), ValueError);
  CHECK_THROWS_AS(center_crop(wrong, 2, 2), ValueError);
}
