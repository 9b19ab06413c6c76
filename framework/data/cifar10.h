#pragma once

#include <cstdint>
#include <string>

#include "framework/data/data.h"
#include "framework/data/images.h"
#include "framework/formats/cifar10.h"

namespace lockstep {

/// CIFAR-10 (Krizhevsky, 2009): colour pictures of 32 x 32 pixels of 10 kinds of things, 50000 to
/// train and 10000 to test, normalized by the train set's means and standard deviations, by channel
/// 0.4914, 0.4822, 0.4465 and 0.2470, 0.2435, 0.2616. The train set takes 154 MB.
class Cifar10 final : public PictureSet {
 public:
  using Split = formats::Cifar10::Split;

  /// Loads one of the two sets from the files of the binary version in `root`. DataError as
  /// formats::Cifar10 throws it; for a file that is missing it says where to get it.
  Cifar10(const std::string& root, Split split, Augmentation augmentation = {},
          std::uint64_t seed = 0);
};

struct Cifar10Options {
  std::string root = "cifar-10-batches-bin";  ///< as the archive unpacks, where a run starts
  Augmentation augmentation{};
};

/// For the registry.
[[nodiscard]] DataKind cifar10_kind();

}  // namespace lockstep
