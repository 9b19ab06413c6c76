#pragma once

#include <cstdint>

#include "framework/data/dataset.h"

namespace lockstep {

/// The batch of the pmean example, four samples a replica: inputs x = 0, 1, …, 4·replicas-1,
/// targets 2x + 0.5. Taken in order and cut over the replicas, replica r has 4r … 4r+3.
class PmeanExample final : public Dataset {
 public:
  /// `replicas` is 1 … 2^20, or a ValueError: with more, float32 would round the targets.
  explicit PmeanExample(std::int64_t replicas);

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] std::int64_t features() const override { return 1; }
  [[nodiscard]] std::int64_t outputs() const override { return 1; }
  [[nodiscard]] Task task() const override { return Task::regression; }

 private:
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices) const override;

  std::int64_t size_;
};

}  // namespace lockstep
