#include "framework/collectives/pargmax.h"

#include <cstdint>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include "framework/collectives/differentiable.h"

namespace lockstep::collectives {
namespace {

// Returns the extrema of one message, in memory of their own.
Tensor reduced(const AxisCall& call, comm::Communicator& replicas, const Tensor& message,
               ReduceOp op) {
  const Tensor result = at::empty_like(message);
  replicas.all_reduce(bytes_of(message), bytes_of(result),
                      element_type(message.scalar_type(), call), op);
  return result;
}

// Runs two rounds: a message a dtype for the extrema, then one message for their lowest holders.
Leaves find_indices(const AxisCall& call, comm::Communicator& replicas, const Leaves& leaves,
                    ReduceOp extremum) {
  // This replica's index where it holds the extremum, else the number of replicas.
  const Leaves candidates = in_messages(leaves, 0, [&](const Tensor& own, bool) {
    const Tensor best = reduced(call, replicas, own, extremum);
    // The extremum is NaN where a value is NaN, and NaN equals nothing.
    const Tensor held = own.eq(best) | (own.isnan() & best.isnan());
    const auto nobody = static_cast<std::int64_t>(replicas.size());
    return at::full(own.sizes(), nobody, own.options().dtype(at::kInt))
        .masked_fill_(held, replicas.rank());
  });
  return in_messages(candidates, 0, [&](const Tensor& message, bool) {
    return reduced(call, replicas, message, ReduceOp::min).to(at::kLong);
  });
}

}  // namespace

Leaves index_of_extremum(const AxisCall& call, ReduceOp extremum, const Leaves& leaves) {
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  check_leaves(leaves, call);
  const Leaves constants = mapped(leaves, [](const Tensor& leaf) { return leaf.detach(); });
  return differentiable(
      call, replicas, constants, "",
      [&](const Leaves& operands) { return find_indices(call, replicas, operands, extremum); },
      nullptr,  // never asked for: nothing here requires a gradient
      ResultAxes::dropped);
}

}  // namespace lockstep::collectives
