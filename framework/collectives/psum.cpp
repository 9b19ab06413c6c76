#include "framework/collectives/psum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include "framework/collectives/differentiable.h"

namespace lockstep::collectives {
namespace {

bool is_linear(Reduction reduction) {
  return reduction != Reduction::max && reduction != Reduction::min;
}

// Integers have no mean on the wire: they are summed there.
ReduceOp op_of(Reduction reduction, ElementType type) {
  if (reduction == Reduction::max) return ReduceOp::max;
  if (reduction == Reduction::min) return ReduceOp::min;
  return reduction == Reduction::mean && is_floating(type) ? ReduceOp::mean : ReduceOp::sum;
}

// Returns the leaf in the type of its sum: booleans are counted, means must not overflow.
Tensor operand_of(const Tensor& leaf, Reduction reduction) {
  const bool counts = leaf.scalar_type() == at::kBool && is_linear(reduction);
  const bool widens = reduction == Reduction::mean && !leaf.is_floating_point();
  return counts || widens ? leaf.to(at::kLong) : leaf;
}

Leaves reduce_all(const AxisCall& call, comm::Communicator& replicas, Reduction reduction,
                  Leaves operands) {
  for (Tensor& operand : operands) operand = operand_of(operand, reduction);
  return in_messages(operands, 0, [&](const Tensor& input, bool is_copy) {
    const Tensor output = is_copy ? input : result_memory(input.sizes(), input.options());
    const ElementType type = element_type(input.scalar_type(), call);
    const ReduceOp op = op_of(reduction, type);
    replicas.all_reduce(bytes_of(input), bytes_of(output), type, op);
    const bool divide = reduction == Reduction::mean && op == ReduceOp::sum;
    // Divided as they are, integers would give LibTorch's default dtype, whichever that is.
    return divide ? output.to(at::kFloat).div(static_cast<std::int64_t>(replicas.size())) : output;
  });
}

// The replicas whose value is the result share the gradient of all.
BackwardRule extremum_rule(const AxisCall& call, const ReduceOptions& options, bool invariant,
                           const Leaves& leaves, const Leaves& results) {
  Leaves holds;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto type = results[i].is_floating_point() ? results[i].scalar_type() : at::kFloat;
    const Tensor leaf = leaves[i].detach();
    const Tensor result = results[i].detach();
    // The replicas that have a NaN hold a NaN result, although NaNs equal nothing.
    holds.push_back((leaf.eq(result) | (leaf.isnan() & result.isnan())).to(type));
  }
  return [=](const Leaves& gradients) {
    const auto sum_of = [&](const Leaves& operands) {
      return invariant ? reduce_leaves(call.as("psum_invariant"), operands,
                                       Reduction::invariant_sum, options)
                       : reduce_leaves(call.as("psum"), operands, Reduction::sum, options);
    };
    const Leaves holders = sum_of(holds);
    Leaves sums = invariant ? gradients : sum_of(gradients);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] * (holds[i] / holders[i]);
    return sums;
  };
}

}  // namespace

Leaves reduce_leaves(const AxisCall& call, const Leaves& leaves, Reduction reduction,
                     const ReduceOptions& options) {
  groups::ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::any);
  check_leaves(leaves, call);
  const bool invariant = gives_invariant(call.axes, options.axis_index_groups);
  if (invariant && (reduction == Reduction::sum || reduction == Reduction::mean)) {
    check_one_kind(call, leaves);
  }
  return differentiable(
      call, replicas, leaves, group_text(options.axis_index_groups),
      [&](const Leaves& operands) { return reduce_all(call, replicas, reduction, operands); },
      [&](const Leaves& results) -> BackwardRule {
        if (!is_linear(reduction)) return extremum_rule(call, options, invariant, leaves, results);
        if (!invariant && reduction != Reduction::invariant_sum) {
          return [=](const Leaves& gradients) {
            return reduce_leaves(call, gradients, reduction, options);
          };
        }
        return [=, size = static_cast<std::int64_t>(replicas.size())](Leaves gradients) {
          for (Tensor& gradient : gradients) {
            if (reduction == Reduction::mean) gradient = gradient / size;
          }
          return pvary_leaves(call.as("pvary"), gradients);
        };
      },
      invariant ? ResultAxes::dropped : ResultAxes::as_operand);
}

Leaves pvary_leaves(const AxisCall& call, const Leaves& leaves, bool copies) {
  groups::ReplicaGroup& replicas = replicas_of(call, {}, GroupSizes::any);
  check_leaves(leaves, call);
  return differentiable(
      call, replicas, leaves, "",
      [&](Leaves operands) {
        for (Tensor& operand : operands) operand = copies ? operand.clone() : operand;
        return operands;
      },
      backward_calls(call, "psum_invariant", reduce_leaves, Reduction::invariant_sum,
                     ReduceOptions()),
      ResultAxes::gained);
}

at::Scalar reduce_number(Reduction reduction, const AxisCall& call, const at::Scalar& x,
                         at::ScalarType dtype, const ReduceOptions& options) {
  return reduce_leaves(call, {at::full({}, x, dtype)}, reduction, options)[0].item();
}

}  // namespace lockstep::collectives
