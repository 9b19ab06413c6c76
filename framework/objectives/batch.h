#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace lockstep::objectives {

// What losses and metrics ask of a batch. `user` is the name of the loss or metric: messages begin
// with it. A batch may be without samples.

/// Throws ValueError with the rule, and the dtypes and shapes of both.
[[noreturn]] void refuse(std::string_view user, std::string_view rule, const at::Tensor& outputs,
                         const at::Tensor& targets);

/// Scores of classes, and for each row of them the class that is right.
struct ClassBatch {
  at::Tensor scores;   ///< (rows, classes), float32 or float64, a view where that is possible
  at::Tensor targets;  ///< (rows), int64, contiguous

  [[nodiscard]] std::int64_t classes() const { return scores.size(1); }
};

/// The batch as rows. Half types become float32. Throws ValueError unless outputs are (samples, …,
/// classes), targets int64 (samples, …), and both on the CPU. Does not look at the targets.
[[nodiscard]] ClassBatch class_batch(std::string_view user, const at::Tensor& outputs,
                                     const at::Tensor& targets);

/// Throws ValueError: the target of this row is no class, and no target that is ignored.
[[noreturn]] void refuse_target(std::string_view user, std::int64_t row, std::int64_t target,
                                std::int64_t classes, std::optional<std::int64_t> ignore_index);

/// Calls visit(row, target) for each of the targets (int64, on the CPU) that is not ignored. Throws
/// ValueError for one that is not from 0 to classes - 1.
template <typename Visit>
void for_each_counted(std::string_view user, const at::Tensor& targets, std::int64_t classes,
                      std::optional<std::int64_t> ignore_index, const Visit& visit) {
  const at::Tensor contiguous = targets.contiguous();
  const auto* const values = contiguous.data_ptr<std::int64_t>();
  const std::int64_t rows = contiguous.numel();
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t target = values[row];
    if (target == ignore_index) continue;
    if (target < 0 || target >= classes) [[unlikely]] {
      refuse_target(user, row, target, classes, ignore_index);
    }
    visit(row, target);
  }
}

/// Numbers, and what they should be.
struct ValueBatch {
  at::Tensor outputs;
  at::Tensor targets;  ///< of the outputs' shape and dtype, float32 or float64
};

/// Half types become float32. Throws ValueError unless outputs and targets then have one shape
/// (samples, …) and one floating-point dtype.
[[nodiscard]] ValueBatch value_batch(std::string_view user, const at::Tensor& outputs,
                                     const at::Tensor& targets);

}  // namespace lockstep::objectives
