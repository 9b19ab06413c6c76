#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/element_type.h"
#include "framework/reduce/canonical_order.h"

namespace lockstep::reduce {

// Reductions whose inputs are spread over workers: the parts that each worker reduces alone, and
// how to combine these parts. The bits are those of reduce().

/// True if reducing the results of subtrees gives the same bits as reducing all inputs at once.
/// False for sums and means of half floats, which are accumulated in float32 and rounded once, and
/// for safe_mean, whose inputs are scaled together.
[[nodiscard]] bool has_partial_sums(ElementType type, ReduceOp op);

/// Returns the operation within a subtree: sum for a mean, else `op`.
[[nodiscard]] ReduceOp partial_op(ReduceOp op);

/// The subtrees that each worker of a group reduces alone: the largest ones of the canonical order
/// that lie within its places, in order. Contiguous places have at most 2 log2(places) subtrees.
/// Unless has_partial_sums(type, op), each subtree is a single input.
class ReductionPlan {
 public:
  /// `places` has each worker's places in the group, ascending.
  ReductionPlan(const std::vector<std::vector<int>>& places, ElementType type, ReduceOp op);

  [[nodiscard]] const std::vector<Subtree>& subtrees(std::size_t worker) const {
    return subtrees_[worker];
  }
  /// True if each worker has exactly one subtree, and reduce() over their sums, in the order of the
  /// workers, gives the bits of reduce() over all inputs.
  [[nodiscard]] bool is_one_sum_each() const noexcept { return is_one_sum_each_; }
  /// Writes reduce() over the inputs at all places to `output`, from the subtrees' partial sums:
  /// their inputs reduced by partial_op(), or their only input. `sums` has `stride` partial sums
  /// for each subtree of each worker; number `part` of each subtree is taken. `output` may be one
  /// of them, as with reduce().
  void combine(const std::vector<std::vector<ConstBytes>>& sums, std::size_t part,
               std::size_t stride, std::span<std::byte> output, ElementType type,
               ReduceOp op) const;

 private:
  int places_ = 0;
  bool is_one_sum_each_;
  std::vector<std::vector<Subtree>> subtrees_;
};

/// Turns a float32 or float64 sum over `places` replicas into their mean, if `op` is a mean.
void divide(std::span<std::byte> sum, int places, ElementType type, ReduceOp op);

}  // namespace lockstep::reduce
