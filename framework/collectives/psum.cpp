#include "framework/collectives/psum.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/packing.h"
#include "framework/collectives/pvary.h"
#include "framework/collectives/record.h"
#include "framework/collectives/result_memory.h"

namespace lockstep::collectives_detail {
namespace {

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "psum";
    case Reduction::invariant_sum:
      return "psum_invariant";
    case Reduction::mean:
      return "pmean";
    case Reduction::max:
      return "pmax";
    case Reduction::min:
      return "pmin";
  }
  return "reduction";
}

bool is_linear(Reduction reduction) {
  return reduction != Reduction::max && reduction != Reduction::min;
}

// Integers have no mean on the wire: they are summed there.
ReduceOp op_of(Reduction reduction, ElementType type) {
  switch (reduction) {
    case Reduction::max:
      return ReduceOp::max;
    case Reduction::min:
      return ReduceOp::min;
    case Reduction::mean:
      return is_floating(type) ? ReduceOp::mean : ReduceOp::sum;
    case Reduction::sum:
    case Reduction::invariant_sum:
      break;
  }
  return ReduceOp::sum;
}

// What a leaf is summed as: booleans are counted, and the mean of integers must not overflow
// theirs.
at::Tensor operand_of(const at::Tensor& leaf, Reduction reduction) {
  const bool counts = leaf.scalar_type() == at::kBool && is_linear(reduction);
  const bool widens = reduction == Reduction::mean && !leaf.is_floating_point();
  return counts || widens ? leaf.to(at::kLong) : leaf;
}

// The leaves of one dtype, reduced into memory that the results then share.
at::Tensor reduced_message(const AxisCall& call, Communicator& replicas, const Leaves& leaves,
                           const std::vector<std::size_t>& indices, Reduction reduction) {
  const at::Tensor input = pack(leaves, indices, 1);
  // A leaf alone may lie in the message as it is.
  const at::Tensor output = indices.size() == 1 ? result_memory_like(input) : input;
  const ElementType type = element_type(input.scalar_type(), call);
  const ReduceOp op = op_of(reduction, type);
  communicate(call, [&] { replicas.all_reduce(bytes_of(input), bytes_of(output), type, op); });
  const bool divide = reduction == Reduction::mean && op == ReduceOp::sum;
  // Divided as they are, integers would give LibTorch's default dtype, whichever that is.
  return divide ? output.to(at::kFloat).div(static_cast<std::int64_t>(replicas.size())) : output;
}

Leaves reduce_all(const AxisCall& call, Communicator& replicas, Reduction reduction,
                  const Leaves& leaves) {
  Leaves operands;
  for (const at::Tensor& leaf : leaves) operands.push_back(operand_of(leaf, reduction));
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(operands)) {
    unpack(reduced_message(call, replicas, operands, indices, reduction), indices, leaves, results);
  }
  return results;
}

// The replicas whose value is the result share the gradient of all.
BackwardRule extremum_rule(const AxisNames& axis_name, const ReduceOptions& options,
                           std::source_location where, const Leaves& leaves,
                           const Leaves& results) {
  Leaves holds;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto type = results[i].is_floating_point() ? results[i].scalar_type() : at::kFloat;
    // A NaN result is held by the replicas that have a NaN, which equal nothing.
    const at::Tensor held = leaves[i].detach().eq(results[i].detach()) |
                            (leaves[i].detach().isnan() & results[i].detach().isnan());
    holds.push_back(held.to(type));
  }
  const bool invariant = gives_invariant(axis_name, options.axis_index_groups);
  return [=](const Leaves& gradients) {
    const auto sum = invariant ? Reduction::invariant_sum : Reduction::sum;
    const Leaves holders = reduce_leaves(sum, holds, axis_name, options, where);
    Leaves sums = invariant ? gradients : reduce_leaves(sum, gradients, axis_name, options, where);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] * (holds[i] / holders[i]);
    return sums;
  };
}

}  // namespace

std::vector<Tensor> reduce_leaves(Reduction reduction, const std::vector<Tensor>& leaves,
                                  const AxisNames& axis_name, const ReduceOptions& options,
                                  std::source_location where) {
  const AxisCall call{name_of(reduction), axis_name, where};
  ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::any);
  check_leaves(leaves, call);
  const bool invariant = gives_invariant(axis_name, options.axis_index_groups);
  if (invariant && (reduction == Reduction::sum || reduction == Reduction::mean)) {
    check_one_kind(call, leaves);
  }
  return differentiable(
      call, replicas, leaves, group_text(options.axis_index_groups),
      [&](const Leaves& operands) { return reduce_all(call, replicas, reduction, operands); },
      [&](const Leaves& results) -> BackwardRule {
        if (!is_linear(reduction)) return extremum_rule(axis_name, options, where, leaves, results);
        if (!invariant && reduction != Reduction::invariant_sum) {
          return [=](const Leaves& gradients) {
            return reduce_leaves(reduction, gradients, axis_name, options, where);
          };
        }
        return [=, size = static_cast<std::int64_t>(replicas.size())](Leaves gradients) {
          for (Tensor& gradient : gradients) {
            if (reduction == Reduction::mean) gradient = gradient / size;
          }
          return pvary_leaves(gradients, axis_name, where);
        };
      },
      invariant ? ResultAxes::dropped : ResultAxes::as_operand);
}

namespace {

template <typename N>
N reduced(Reduction reduction, N x, at::ScalarType dtype, const AxisNames& axis_name,
          const ReduceOptions& options, std::source_location where) {
  return reduce_leaves(reduction, {at::full({}, x, dtype)}, axis_name, options, where)[0]
      .template item<N>();
}

}  // namespace

std::int64_t reduce_number(Reduction reduction, std::int64_t x, const AxisNames& axis_name,
                           const ReduceOptions& options, std::source_location where) {
  return reduced(reduction, x, at::kLong, axis_name, options, where);
}

std::int64_t reduce_number(Reduction reduction, std::uint64_t x, const AxisNames& axis_name,
                           const ReduceOptions& options, std::source_location where) {
  if (!std::in_range<std::int64_t>(x)) {
    throw ValueError(lockstep::str(AxisCall{name_of(reduction), axis_name, where}.text(), ": ", x,
                                   " is beyond the numbers of int64, in which it works"));
  }
  return reduce_number(reduction, static_cast<std::int64_t>(x), axis_name, options, where);
}

float reduce_number(Reduction reduction, float x, const AxisNames& axis_name,
                    const ReduceOptions& options, std::source_location where) {
  return reduced(reduction, x, at::kFloat, axis_name, options, where);
}

double reduce_number(Reduction reduction, double x, const AxisNames& axis_name,
                     const ReduceOptions& options, std::source_location where) {
  return reduced(reduction, x, at::kDouble, axis_name, options, where);
}

}  // namespace lockstep::collectives_detail
