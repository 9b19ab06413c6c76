#include "framework/collectives/pbroadcast.h"

#include <ATen/ops/zeros_like.h>

#include "framework/axes/environment.h"
#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/packing.h"
#include "framework/collectives/result_memory.h"

namespace lockstep::collectives_detail {
namespace {

Leaves broadcast_all(const AxisCall& call, Communicator& replicas, const Leaves& leaves,
                     std::int64_t source) {
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(leaves)) {
    const at::Tensor packed = pack(leaves, indices, 1);
    // The result shares no memory with x.
    const at::Tensor message = result_memory_like(packed);
    if (replicas.rank() == source) message.copy_(packed);
    communicate(call, [&] { replicas.broadcast(bytes_of(message), static_cast<int>(source)); });
    unpack(message, indices, leaves, results);
  }
  return results;
}

Leaves sum_at_source(const AxisCall& call, Communicator& replicas, const Leaves& leaves,
                     std::int64_t source) {
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(leaves)) {
    const at::Tensor packed = pack(leaves, indices, 1);
    if (!packed.is_floating_point()) {  // not a gradient
      unpack(at::zeros_like(packed), indices, leaves, results);
      continue;
    }
    const at::Tensor sum = result_memory_like(packed);
    communicate(call, [&] {
      replicas.all_reduce(bytes_of(packed), bytes_of(sum), element_type(packed.scalar_type(), call),
                          ReduceOp::sum);
    });
    if (replicas.rank() != source) sum.zero_();
    unpack(sum, indices, leaves, results);
  }
  return results;
}

// pbroadcast's transpose. A node of its own on every replica, also where its result is zeros: its
// backward is a collective in which all take part.
std::vector<Tensor> transposed_leaves(const std::vector<Tensor>& leaves, const AxisNames& axis_name,
                                      std::int64_t source, std::source_location where) {
  const AxisCall call{"the transpose of pbroadcast", axis_name, where};
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  return differentiable(
      call, replicas, leaves, lockstep::str("source ", source),
      [&](const Leaves& operands) { return sum_at_source(call, replicas, operands, source); },
      [&](const Leaves&) -> BackwardRule {
        return [=](const Leaves& gradients) {
          return pbroadcast_leaves(gradients, axis_name, source, where);
        };
      });
}

}  // namespace

std::vector<Tensor> pbroadcast_leaves(const std::vector<Tensor>& leaves, const AxisNames& axis_name,
                                      std::int64_t source, std::source_location where) {
  const AxisCall call{"pbroadcast", axis_name, where};
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  check_leaves(leaves, call);
  if (source < 0 || source >= replicas.size()) {
    throw ValueError(lockstep::str(call.text(), ": source ", source,
                                   " is not on the axis, which "
                                   "has 0 to ",
                                   replicas.size() - 1));
  }
  return differentiable(
      call, replicas, leaves, lockstep::str("source ", source),
      [&](const Leaves& operands) { return broadcast_all(call, replicas, operands, source); },
      [&](const Leaves&) -> BackwardRule {
        return [=](const Leaves& gradients) {
          return transposed_leaves(gradients, axis_name, source, where);
        };
      });
}

}  // namespace lockstep::collectives_detail
