#include "framework/collectives/pargmax.h"

#include <cstddef>
#include <cstdint>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>

#include "framework/axes/environment.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/packing.h"

namespace lockstep::collectives_detail {
namespace {

at::Tensor reduced(const AxisCall& call, Communicator& replicas, const at::Tensor& message,
                   ReduceOp op) {
  const at::Tensor result = at::empty_like(message);
  communicate(call, [&] {
    replicas.all_reduce(bytes_of(message), bytes_of(result),
                        element_type(message.scalar_type(), call), op);
  });
  return result;
}

// Two rounds: one message a dtype finds the extrema, one for all leaves the lowest index that holds
// each.
Leaves find_indices(const AxisCall& call, Communicator& replicas, const Leaves& leaves,
                    ReduceOp extremum) {
  Leaves candidates(leaves.size());  // this replica's index where it holds the extremum
  const std::int64_t size = replicas.size();
  for (const auto& indices : by_dtype(leaves)) {
    const at::Tensor own = pack(leaves, indices, 1);
    const at::Tensor best = reduced(call, replicas, own, extremum);
    // The reduction gives NaN where one is NaN, which equals nothing.
    const at::Tensor held = own.eq(best) | (own.isnan() & best.isnan());
    const at::Tensor index = at::full(own.sizes(), size, own.options().dtype(at::kInt));
    unpack(index.masked_fill_(held, replicas.rank()), indices, leaves, candidates);
  }
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(candidates)) {
    const at::Tensor message = pack(candidates, indices, 1);
    const at::Tensor lowest = reduced(call, replicas, message, ReduceOp::min);
    unpack(lowest.to(at::kLong), indices, leaves, results);
  }
  return results;
}

}  // namespace

std::vector<Tensor> index_of_extremum(ReduceOp extremum, const std::vector<Tensor>& leaves,
                                      const AxisNames& axis_name, std::source_location where) {
  const char* const operation = extremum == ReduceOp::max ? "pargmax" : "pargmin";
  const AxisCall call{operation, axis_name, where};
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  check_leaves(leaves, call);
  Leaves constants;
  for (const Tensor& leaf : leaves) constants.push_back(leaf.detach());
  return differentiable(
      call, replicas, constants, "",
      [&](const Leaves& operands) { return find_indices(call, replicas, operands, extremum); },
      // Never asked for: nothing here requires a gradient.
      [](const Leaves&) { return BackwardRule(); }, ResultAxes::dropped);
}

}  // namespace lockstep::collectives_detail
