#include "framework/data/images.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/equal.h>

#include "tests/catch.h"
#include "tests/data/same_batches.h"

namespace lockstep {
namespace {

using testing::whole;

constexpr std::int64_t kHeight = 4;
constexpr std::int64_t kWidth = 5;

// Pictures of two channels whose pixels tell their place: 1 + 20·channel + 5·row + column.
Pictures numbered(std::int64_t count) {
  Pictures pictures{.channels = 2,
                    .height = kHeight,
                    .width = kWidth,
                    .classes = 3,
                    .mean = {0, 0.5},
                    .deviation = {1.0 / 255, 0.25}};
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::uint8_t pixel = 0; pixel < 40; ++pixel) {
      pictures.pixels.push_back(static_cast<std::uint8_t>(1 + pixel));
    }
    pictures.labels.push_back(i % 3);
  }
  return pictures;
}

// Channel 0 of each picture in bytes: its mean is 0, and a deviation of 1/255 undoes the scaling.
std::vector<std::vector<int>> bytes_of(const Batch& batch) {
  std::vector<std::vector<int>> pictures;
  for (std::int64_t i = 0; i < batch.inputs.size(0); ++i) {
    const at::Tensor channel = batch.inputs[i][0].contiguous();
    std::vector<int>& picture = pictures.emplace_back();
    for (std::int64_t j = 0; j < channel.numel(); ++j) {
      picture.push_back(static_cast<int>(std::lround(channel.data_ptr<float>()[j])));
    }
  }
  return pictures;
}

// What a picture becomes that is shifted and mirrored.
std::vector<int> changed(std::int64_t down, std::int64_t right, bool is_mirrored) {
  std::vector<int> picture;
  for (std::int64_t y = 0; y < kHeight; ++y) {
    for (std::int64_t x = 0; x < kWidth; ++x) {
      const std::int64_t row = y + down;
      const std::int64_t column = (is_mirrored ? kWidth - 1 - x : x) + right;
      const bool is_inside = row >= 0 && row < kHeight && column >= 0 && column < kWidth;
      picture.push_back(is_inside ? static_cast<int>(1 + 5 * row + column) : 0);
    }
  }
  return picture;
}

}  // namespace

TEST_CASE("pictures are normalized channel by channel, and are what they are without an epoch") {
  const PictureSet set(numbered(4), {.crop = 2, .flip = true}, 7);
  CHECK(set.size() == 4);
  CHECK(set.type() == class_sample({2, kHeight, kWidth}, 3));
  const Batch batch = whole(set);
  for (const auto& picture : bytes_of(batch)) CHECK(picture == changed(0, 0, false));
  for (std::int64_t j = 0; j < 20; ++j) {
    const double value = ((21 + static_cast<double>(j)) / 255 - 0.5) / 0.25;
    CHECK(batch.inputs[1][1].flatten()[j].item<float>() == static_cast<float>(value));
  }
  CHECK(batch.targets[2].item<std::int64_t>() == 2);
}

TEST_CASE("augmentation shifts by up to `crop` pixels and mirrors, each about as often as any") {
  constexpr std::int64_t kCount = 2000;
  const PictureSet set(numbered(kCount), {.crop = 1, .flip = true}, 7);
  std::vector<std::vector<int>> possible;
  for (std::int64_t down = -1; down <= 1; ++down) {
    for (std::int64_t right = -1; right <= 1; ++right) {
      for (const bool is_mirrored : {false, true}) {
        possible.push_back(changed(down, right, is_mirrored));
      }
    }
  }
  std::vector<int> counts(possible.size());
  for (const auto& picture : bytes_of(whole(set, 0))) {
    const auto found = std::ranges::find(possible, picture);
    REQUIRE(found != possible.end());
    ++counts[static_cast<std::size_t>(found - possible.begin())];
  }
  // 111 of each are expected, with a deviation of 10.
  for (const int count : counts) CHECK(std::abs(count - kCount / 18) < 60);
}

TEST_CASE("a sample of an epoch is the same whoever asks, and another in another epoch and seed") {
  const Augmentation augmentation{.crop = 2, .flip = true};
  const PictureSet set(numbered(50), augmentation, 7);
  const auto all = bytes_of(whole(set, 3));
  for (const std::int64_t i : {49, 0, 17, 17}) {
    const std::vector<std::int64_t> one{i};
    CHECK(bytes_of(set.batch(one, 3))[0] == all[static_cast<std::size_t>(i)]);
  }
  CHECK(bytes_of(whole(set, 4)) != all);
  CHECK(bytes_of(whole(PictureSet(numbered(50), augmentation, 8), 3)) != all);
  CHECK(bytes_of(whole(PictureSet(numbered(50), augmentation, 7), 3)) == all);
  const PictureSet plain(numbered(50));
  CHECK(at::equal(whole(plain, 3).inputs, whole(plain).inputs));
}

TEST_CASE("pictures that do not fit together are refused") {
  const auto refused = [](auto change, const std::string& words) {
    Pictures pictures = numbered(3);
    change(pictures);
    CHECK_THROWS_WITH(PictureSet(pictures), ContainsSubstring(words));
  };
  refused([](Pictures& p) { p.pixels.pop_back(); },
          "pictures: 119 bytes are not 3 pictures of 2 x 4 x 5");
  refused([](Pictures& p) { p.labels[1] = 3; }, "pictures: label 3 is outside 0 ... 2");
  refused([](Pictures& p) { p.mean.pop_back(); }, "needed for each channel, but these are [0]");
  refused([](Pictures& p) { p.deviation[1] = 0; }, "a deviation other than 0");
  CHECK_THROWS_WITH(PictureSet(numbered(3), {.crop = -1}),
                    "pictures: crop is -1, but must be at least 0");
}

}  // namespace lockstep
