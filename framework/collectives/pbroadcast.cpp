#include "framework/collectives/pbroadcast.h"

#include <ATen/ops/zeros_like.h>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"

namespace lockstep::collectives_detail {
namespace {

// pbroadcast's transpose. A node of its own on every replica, also where its result is zeros: its
// backward is a collective in which all take part.
Leaves transposed_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t source) {
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  return collectives::differentiable(
      call, replicas, leaves, lockstep::str("source ", source),
      [&](const Leaves& operands) {
        return collectives::in_messages(operands, 0, [&](const Tensor& message, bool) {
          if (!message.is_floating_point()) return at::zeros_like(message);  // not a gradient
          const Tensor sum = collectives::result_memory_like(message);
          replicas.all_reduce(collectives::bytes_of(message), collectives::bytes_of(sum),
                              collectives::element_type(message.scalar_type(), call),
                              reduce::ReduceOp::sum);
          if (replicas.rank() != source) sum.zero_();
          return sum;
        });
      },
      [&](const Leaves&) -> collectives::BackwardRule {
        return [=](const Leaves& gradients) {
          return pbroadcast_leaves({"pbroadcast", call.axes, call.where}, gradients, source);
        };
      });
}

}  // namespace

Leaves pbroadcast_leaves(const AxisCall& call, const Leaves& leaves, std::int64_t source) {
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  collectives::check_leaves(leaves, call);
  call.require(source >= 0 && source < replicas.size(), "source ", source,
               " is not on the axis, which has 0 to ", replicas.size() - 1);
  return collectives::differentiable(
      call, replicas, leaves, lockstep::str("source ", source),
      [&](const Leaves& operands) {
        return collectives::in_messages(operands, 0, [&](const Tensor& own, bool) {
          const Tensor message =
              collectives::result_memory_like(own);  // the result shares no memory with x
          if (replicas.rank() == source) message.copy_(own);
          replicas.broadcast(collectives::bytes_of(message), static_cast<int>(source));
          return message;
        });
      },
      [&](const Leaves&) -> collectives::BackwardRule {
        return [=](const Leaves& gradients) {
          return transposed_leaves({"the transpose of pbroadcast", call.axes, call.where},
                                   gradients, source);
        };
      });
}

}  // namespace lockstep::collectives_detail
