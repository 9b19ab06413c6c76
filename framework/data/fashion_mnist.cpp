#include "framework/data/fashion_mnist.h"

#include <cstddef>
#include <filesystem>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/formats/idx.h"

namespace lockstep {
namespace {

// By channel, of the training set's pixels.
constexpr double kFashionMnistMean = 0.2860;
constexpr double kFashionMnistDeviation = 0.3530;

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kClasses = 10;
constexpr const char* kImages = "images-idx3-ubyte";
constexpr const char* kLabels = "labels-idx1-ubyte";

std::string find_file(const std::string& root, FashionMnist::Split split, const std::string& what) {
  const std::string name = (split == FashionMnist::Split::train ? "train-" : "t10k-") + what;
  const std::filesystem::path plain = std::filesystem::path(root) / name;
  const std::filesystem::path packed = plain.string() + ".gz";
  if (formats::is_there(plain)) return plain.string();
  if (formats::is_there(packed)) return packed.string();
  throw DataError(
      str("fashion_mnist: there is neither '", plain.string(), "' nor '", packed.string(),
          "'; Debian's package dataset-fashion-mnist has the files in ", kFashionMnistRoot));
}

Pictures load(const std::string& root, FashionMnist::Split split) {
  const std::string images_path = find_file(root, split, kImages);
  const std::string labels_path = find_file(root, split, kLabels);

  // Headers first: what they show to be wrong costs no reading.
  formats::IdxFile images(images_path, 3);
  if (images.shape()[1] != kSide || images.shape()[2] != kSide) {
    images.fail(str("its pictures are of ", images.shape()[1], " x ", images.shape()[2],
                    " pixels, but must be of ", kSide, " x ", kSide));
  }
  const std::int64_t count = images.shape()[0];
  if (count == 0) images.fail("it has no pictures");
  formats::IdxFile labels(labels_path, 1);
  if (labels.shape()[0] != count) {
    labels.fail(str("it has ", counted(labels.shape()[0], "label"), ", but '", images_path,
                    "' has ", counted(count, "picture")));
  }
  Pictures pictures{.height = kSide,
                    .width = kSide,
                    .classes = kClasses,
                    .pixels = images.read_values(),
                    .mean = {kFashionMnistMean},
                    .deviation = {kFashionMnistDeviation},
                    .names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
                              "Shirt", "Sneaker", "Bag", "Ankle boot"}};
  const std::vector<std::uint8_t> values = labels.read_values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= kClasses) {
      labels.fail(
          str("label number ", i, " is ", int{values[i]}, ", but labels are 0 ... ", kClasses - 1));
    }
  }
  pictures.labels.assign(values.begin(), values.end());
  return pictures;
}

}  // namespace

FashionMnist::FashionMnist(const std::string& root, Split split, Augmentation augmentation,
                           std::uint64_t seed)
    : PictureSet(load(root, split), augmentation, seed) {}

DataKind fashion_mnist_kind() {
  return picture_kind<FashionMnist, FashionMnistOptions>(
      "fashion_mnist", "28 x 28 gray pictures of 10 kinds of clothes, 60000 and 10000",
      {kFashionMnistMean}, {kFashionMnistDeviation},
      [](const std::string& root, FashionMnist::Split split, const formats::OnDamage& on_damage) {
        for (const auto& [name, dimensions] : {std::pair(kImages, 3), std::pair(kLabels, 1)}) {
          formats::do_or_tell(on_damage, [&, what = name, shape = dimensions] {
            (void)formats::IdxFile(find_file(root, split, what), shape).read_values();
          });
        }
      });
}

}  // namespace lockstep
