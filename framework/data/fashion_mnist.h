#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/data/data.h"

namespace lockstep {

/// Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): gray pictures of 28 x 28 pixels of 10 kinds of
/// clothes, 60000 to train and 10000 to test. A batch's inputs are the pixels in rows of 784,
/// scaled to 0 … 1 and normalized by the train set's mean 0.2860 and standard deviation 0.3530.
/// The pictures stay bytes in memory, 47 MB for the train set.
class FashionMnist final : public Dataset {
 public:
  enum class Split { train, test };

  /// Loads one of the two sets from its IDX files in `root`, {train,t10k}-images-idx3-ubyte and
  /// {train,t10k}-labels-idx1-ubyte, or the same with .gz where there is no plain one. A file that
  /// is missing or is not as it should be (see IdxFile; 28 x 28 pixels, at least one picture, as
  /// many labels, each 0 … 9) is a DataError that names it.
  FashionMnist(const std::string& root, Split split);

  [[nodiscard]] std::int64_t size() const override { return std::ssize(labels_); }
  [[nodiscard]] std::int64_t features() const override { return kPixels; }
  [[nodiscard]] std::int64_t outputs() const override { return kClasses; }
  [[nodiscard]] Task task() const override { return Task::classification; }

 private:
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices) const override;

  static constexpr std::int64_t kSide = 28;
  static constexpr std::int64_t kPixels = kSide * kSide;
  static constexpr std::int64_t kClasses = 10;

  std::vector<std::uint8_t> pixels_;  // (size, 28, 28)
  std::vector<std::uint8_t> labels_;  // (size)
};

}  // namespace lockstep
