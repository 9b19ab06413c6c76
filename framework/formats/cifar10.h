#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/formats/data_file.h"

namespace lockstep::formats {

/// CIFAR-10 (Krizhevsky, 2009) in its binary version, https://www.cs.toronto.edu/~kriz/cifar.html:
/// colour pictures of 32 x 32 pixels of 10 classes. A record is a byte with the label, then the
/// red, the green and the blue plane of 1024 bytes each, row by row.
struct Cifar10 {
  static constexpr std::int64_t kSide = 32;
  static constexpr std::size_t kPixelBytes = 3 * kSide * kSide;
  static constexpr std::size_t kClasses = 10;

  enum class Split { train, test };

  /// Reads data_batch_1.bin … data_batch_5.bin (train) or test_batch.bin from `root`. The real ones
  /// have 10000 records; here any whole number from one on will do. DataError, naming the file, for
  /// one that is missing, has another size, or a label beyond 9. batches.meta.txt may be missing;
  /// if it is there, it must name ten classes, one a line.
  /// What is damaged goes to `on_damage`, if that is there, and is left out.
  Cifar10(const std::string& root, Split split, const OnDamage& on_damage = {});

  std::vector<std::uint8_t> labels{};      ///< each 0 … 9
  std::vector<std::uint8_t> pixels{};      ///< (labels, 3, 32, 32), row-major
  std::vector<std::string> class_names{};  ///< of the ten, or none without a batches.meta.txt
};

}  // namespace lockstep::formats
