#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/reduce/canonical_order.h"
#include "framework/reduce/element_type.h"

namespace lockstep::reduce {

// A reduction whose inputs are in several workers: which parts each worker can reduce alone, and
// how these make the whole, with the bits of reduce().

/// The largest subtrees of the canonical order over `places` whose places are all in `own`
/// (ascending), in order. For a contiguous `own` there are at most 2 log2(places).
[[nodiscard]] std::vector<Subtree> subtrees_of(std::span<const int> own, int places);

/// Whether the results of subtrees can be reduced further with the same bits as all inputs at once.
/// Not so for sums and means of half floats: these are accumulated in float32 and rounded once.
[[nodiscard]] bool has_partial_sums(ElementType type, ReduceOp op);

/// The operation within a subtree: sum for a mean, else `op`.
[[nodiscard]] ReduceOp partial_op(ReduceOp op);

/// A subtree and the reduction of its inputs by partial_op(), or its only input.
struct PartialSum {
  Subtree of;
  const std::byte* data;
};

/// Which subtrees each worker of a group reduces alone. Without has_partial_sums(type, op) each has
/// one input.
class ReductionPlan {
 public:
  /// `places` are those of each worker, ascending.
  ReductionPlan(const std::vector<std::vector<int>>& places, ElementType type, ReduceOp op);

  [[nodiscard]] const std::vector<Subtree>& subtrees(std::size_t worker) const {
    return subtrees_[worker];
  }
  /// Whether each worker has one subtree, and reduce() of their sums, in the order of the workers,
  /// has the bits of reduce() of all inputs.
  [[nodiscard]] bool is_one_sum_each() const;
  /// The partial sums of all subtrees, in order. Each worker has `stride` pieces of each of its
  /// subtrees in `pieces`; number `part` of them is taken.
  [[nodiscard]] std::vector<PartialSum> in_order(const std::vector<std::vector<ConstBytes>>& pieces,
                                                 std::size_t part, std::size_t stride) const;

 private:
  int places_ = 0;
  std::vector<std::vector<Subtree>> subtrees_;
};

/// output = reduce() of the inputs at all `places`, from partial sums that have all places, in
/// order. `output` may be one of them, as with reduce(). Unless has_partial_sums(type, op), these
/// are the inputs.
void combine(std::span<const PartialSum> parts, int places, std::span<std::byte> output,
             ElementType type, ReduceOp op);

/// Makes a sum of float32 or float64 over `places` their mean.
void divide(std::span<std::byte> sum, int places, ElementType type);

}  // namespace lockstep::reduce
