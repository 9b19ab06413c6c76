#include "framework/collectives/pbroadcast.h"

#include <ATen/ops/zeros_like.h>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"

namespace lockstep::collectives {
namespace {

// pbroadcast's transpose: a node of its own on every replica, also where its result is zeros, since
// its backward is a collective in which all take part.
Leaves transposed_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t source) {
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  return differentiable(
      call, replicas, leaves, lockstep::str("source ", source),
      [&](const Leaves& operands) {
        return in_messages(operands, 0, [&](const Tensor& message, bool) {
          if (!message.is_floating_point()) return at::zeros_like(message);  // not a gradient
          const Tensor sum = result_memory(message.sizes(), message.options());
          replicas.all_reduce(bytes_of(message), bytes_of(sum),
                              element_type(message.scalar_type(), call), ReduceOp::sum);
          if (replicas.rank() != source) sum.zero_();
          return sum;
        });
      },
      backward_calls(call, "pbroadcast", pbroadcast_leaves, source));
}

}  // namespace

Leaves pbroadcast_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t source) {
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  check_leaves(leaves, call);
  call.require(source >= 0 && source < replicas.size(), "source ", source,
               " is not on the axis, which has 0 to ", replicas.size() - 1);
  return differentiable(
      call, replicas, leaves, lockstep::str("source ", source),
      [&](const Leaves& operands) {
        return in_messages(operands, 0, [&](const Tensor& own, bool) {
          // The result shares no memory with x.
          const Tensor message = result_memory(own.sizes(), own.options());
          if (replicas.rank() == source) message.copy_(own);
          replicas.broadcast(bytes_of(message), static_cast<int>(source));
          return message;
        });
      },
      backward_calls(call, "the transpose of pbroadcast", transposed_leaves, source));
}

}  // namespace lockstep::collectives
