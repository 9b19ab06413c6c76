#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/formats/data_file.h"

namespace lockstep::formats {

/// CIFAR-10 (Krizhevsky, 2009) in its binary version, https://www.cs.toronto.edu/~kriz/cifar.html:
/// colour pictures of 32 x 32 pixels of 10 classes. A record is a byte with the label, then the
/// red, the green and the blue plane of 1024 bytes each, row by row. All in memory; any thread.
class Cifar10 {
 public:
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

  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(labels_); }
  /// (size), each 0 … 9.
  [[nodiscard]] const std::vector<std::uint8_t>& labels() const noexcept { return labels_; }
  /// (size, 3, 32, 32), row-major.
  [[nodiscard]] std::span<const std::uint8_t> pixels() const noexcept { return pixels_; }
  /// Names of the ten classes, or none without a batches.meta.txt.
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept {
    return class_names_;
  }

 private:
  void read_batch(const std::string& path);

  std::vector<std::uint8_t> labels_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::string> class_names_;
};

}  // namespace lockstep::formats
