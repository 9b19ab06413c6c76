#pragma once

#include <cstdint>
#include <string>

#include "framework/data/data.h"
#include "framework/data/images.h"

namespace lockstep {

/// The folder of Debian's package dataset-fashion-mnist.
inline constexpr const char* kFashionMnistRoot = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): gray pictures of 28 x 28 pixels of 10 kinds of
/// clothes, 60000 to train and 10000 to test, normalized by the train set's mean 0.2860 and
/// standard deviation 0.3530. They take 47 MB in memory, for the train set.
class FashionMnist final : public PictureSet {
 public:
  enum class Split { train, test };

  /// Loads one of the two sets from its IDX files in `root`, {train,t10k}-images-idx3-ubyte and
  /// {train,t10k}-labels-idx1-ubyte, or the same with .gz where there is no plain one. A file that
  /// is missing or is not as it should be (see IdxFile; 28 x 28 pixels, at least one picture, as
  /// many labels, each 0 … 9) is a DataError that names it.
  FashionMnist(const std::string& root, Split split, Augmentation augmentation = {},
               std::uint64_t seed = 0);
};

struct FashionMnistOptions {
  std::string root = kFashionMnistRoot;
  Augmentation augmentation{};
};

/// For the registry.
[[nodiscard]] DataKind fashion_mnist_kind();

}  // namespace lockstep
