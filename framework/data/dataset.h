#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// What a set's targets are: numbers to come near to, or the class of each sample.
enum class Task { regression, classification };

/// Some samples of a dataset, in the order asked for. With `count` of them:
///   inputs   float32, (count, features)
///   targets  regression: float32, (count, outputs); classification: int64, (count), each a class
///            in 0 … outputs-1
/// Both are contiguous, on the CPU, and the caller's own: writing to them changes no dataset.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// A fixed list of samples that is held in memory. Every function is const and may be called by
/// several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// How many samples there are; at least 1.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Input values a sample.
  [[nodiscard]] virtual std::int64_t features() const = 0;
  /// Regression: target values a sample. Classification: how many classes there are.
  [[nodiscard]] virtual std::int64_t outputs() const = 0;
  [[nodiscard]] virtual Task task() const = 0;

  /// The samples with these numbers, which may repeat; none gives tensors of 0 rows. A number
  /// outside 0 … size()-1 is a ValueError.
  [[nodiscard]] Batch batch(std::span<const std::int64_t> indices) const;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;

 private:
  /// What batch() returns; every index is known to be one of a sample.
  [[nodiscard]] virtual Batch gather(std::span<const std::int64_t> indices) const = 0;
};

}  // namespace lockstep
