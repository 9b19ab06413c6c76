#include "framework/data/cifar10.h"

#include <array>
#include <filesystem>
#include <utility>

namespace lockstep {
namespace {

// By channel, of the training set's pixels.
constexpr std::array kCifar10Mean{0.4914, 0.4822, 0.4465};
constexpr std::array kCifar10Deviation{0.2470, 0.2435, 0.2616};

Pictures load_cifar10(const std::string& root, Cifar10::Split split) {
  using Records = formats::Cifar10;
  const bool is_train = split == Cifar10::Split::train;
  const std::filesystem::path folder(root);
  data::require_there(
      "cifar10", (folder / (is_train ? "data_batch_1.bin" : "test_batch.bin")).string(),
      "data.root must be the folder cifar-10-batches-bin that cifar-10-binary.tar.gz has, the "
      "\"binary version\" from https://www.cs.toronto.edu/~kriz/cifar.html");
  Records records(root, split);
  return {.channels = 3,
          .height = Records::kSide,
          .width = Records::kSide,
          .classes = Records::kClasses,
          .pixels = std::move(records.pixels),
          .labels = {records.labels.begin(), records.labels.end()},
          .mean = {kCifar10Mean.begin(), kCifar10Mean.end()},
          .deviation = {kCifar10Deviation.begin(), kCifar10Deviation.end()},
          .names = std::move(records.class_names)};
}

}  // namespace

Cifar10::Cifar10(const std::string& root, Split split, Augmentation augmentation,
                 std::uint64_t seed)
    : PictureSet(load_cifar10(root, split), augmentation, seed) {}

DataKind cifar10_kind() {
  return picture_kind<Cifar10, Cifar10Options>(
      "cifar10", "32 x 32 colour pictures of 10 kinds of things, 50000 and 10000",
      {kCifar10Mean.begin(), kCifar10Mean.end()},
      {kCifar10Deviation.begin(), kCifar10Deviation.end()},
      [](const std::string& root, Cifar10::Split split, const formats::OnDamage& on_damage) {
        (void)formats::Cifar10(root, split, on_damage);
      });
}

}  // namespace lockstep
