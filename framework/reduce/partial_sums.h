#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/reduce/canonical_order.h"
#include "framework/reduce/element_type.h"

namespace lockstep {

// A reduction whose inputs are in several processes: what each of them can reduce alone, and how
// the rest is made of that, with the bits of reduce().

/// The largest subtrees of the canonical order over `places` that have no places but `own`
/// (ascending), in order. For a contiguous `own` there are at most 2 log2(places).
[[nodiscard]] std::vector<Subtree> subtrees_of(std::span<const int> own, int places);

/// Whether reductions of subtrees can be reduced further as if nothing had been rounded between:
/// not sums and means of half floats, which are accumulated in float32.
[[nodiscard]] bool has_partial_sums(ElementType type, ReduceOp op);

/// What the inputs of a subtree are reduced with: `op`, but for a mean sum.
[[nodiscard]] ReduceOp partial_op(ReduceOp op);

/// A subtree and the reduction of its inputs by partial_op(), or its only input.
struct PartialSum {
  Subtree of;
  const std::byte* data;
};

/// Which subtrees the processes of a group reduce, each alone. Those of one input unless
/// has_partial_sums(type, op).
class ReductionPlan {
 public:
  /// `places` are those of each process, ascending.
  ReductionPlan(const std::vector<std::vector<int>>& places, ElementType type, ReduceOp op);

  [[nodiscard]] const std::vector<Subtree>& subtrees(std::size_t process) const {
    return subtrees_[process];
  }
  /// Whether each process has one subtree, and one reduce() of their sums, in the order of the
  /// processes, gives that of all inputs.
  [[nodiscard]] bool is_one_sum_each() const;
  /// The partial sums of all subtrees, in order, of which each process has `stride` pieces: number
  /// `part` of each.
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

}  // namespace lockstep
