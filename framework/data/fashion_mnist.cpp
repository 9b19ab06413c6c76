#include "framework/data/fashion_mnist.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include <ATen/ops/empty.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/formats/idx.h"

namespace lockstep {
namespace {

constexpr double kMean = 0.2860;
constexpr double kDeviation = 0.3530;

// Whatever is there, readable or not: IdxFile says what is wrong with it.
bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

std::string find_file(const std::string& root, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(root) / name;
  const std::filesystem::path packed = plain.string() + ".gz";
  if (is_there(plain)) return plain.string();
  if (is_there(packed)) return packed.string();
  throw DataError(
      str("fashion_mnist: there is neither '", plain.string(), "' nor '", packed.string(),
          "'; Debian's package dataset-fashion-mnist has the files in ", kFashionMnistRoot));
}

// The float that each value of a pixel becomes.
std::array<float, 256> normalized_pixels() {
  std::array<float, 256> table{};
  for (std::size_t value = 0; value < table.size(); ++value) {
    table[value] = static_cast<float>((static_cast<double>(value) / 255.0 - kMean) / kDeviation);
  }
  return table;
}

}  // namespace

FashionMnist::FashionMnist(const std::string& root, Split split) {
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const std::string images_path = find_file(root, prefix + "-images-idx3-ubyte");
  const std::string labels_path = find_file(root, prefix + "-labels-idx1-ubyte");

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
  pixels_ = images.read_values();
  labels_ = labels.read_values();
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i] >= kClasses) {
      labels.fail(str("label number ", i, " is ", int{labels_[i]}, ", but labels are 0 ... ",
                      kClasses - 1));
    }
  }
}

Batch FashionMnist::gather(std::span<const std::int64_t> indices) const {
  static const std::array<float, 256> table = normalized_pixels();
  const auto count = static_cast<std::int64_t>(indices.size());
  Batch batch{at::empty({count, kPixels}, at::kFloat), at::empty({count}, at::kLong)};
  float* input = batch.inputs.data_ptr<float>();
  std::int64_t* target = batch.targets.data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const std::uint8_t* row = pixels_.data() + index * kPixels;
    for (std::int64_t i = 0; i < kPixels; ++i) input[i] = table[row[i]];
    input += kPixels;
    *target++ = labels_[static_cast<std::size_t>(index)];
  }
  return batch;
}

}  // namespace lockstep
