#include "framework/collectives/axis_queue.h"

#include <numeric>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"

namespace lockstep {

AxisQueue::AxisQueue(AxisNames axis_name, bool overlap, std::source_location where)
    : axis_(std::move(axis_name)), where_(where) {
  const AxisCall call{"collectives that are started", axis_, where_};
  ReplicaGroup& replicas = replicas_of(call, {}, GroupSizes::equal);
  if (!overlap || !replicas.is_network() || replicas.has_several_in_a_process()) return;
  std::vector<int> everyone(static_cast<std::size_t>(replicas.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  // A channel that nobody else has: the number of this call, which all replicas count alike.
  const auto number = current_environment()->next_call(replicas).number;
  queue_ = std::make_unique<CollectiveQueue>(replicas.subgroup(everyone, number));
}

AxisQueue::Call AxisQueue::pmean_(const Tensor& x) {
  Call started;
  started.result = x;
  if (!queue_) {
    lockstep::pmean_(x, axis_, {}, where_);
    return started;
  }
  const AxisCall call{"pmean_", axis_, where_};
  started.handle = queue_->all_reduce(bytes_of(x), bytes_of(x), element_type(x.scalar_type(), call),
                                      ReduceOp::mean);
  return started;
}

AxisQueue::Call AxisQueue::pmean_scatter_into(const Tensor& output, const Tensor& input) {
  Call started;
  started.result = output;
  if (!queue_) {
    lockstep::pmean_scatter_into(output, input, axis_, {}, where_);
    return started;
  }
  const AxisCall call{"pmean_scatter_into", axis_, where_};
  started.handle = queue_->reduce_scatter(bytes_of(input), bytes_of(output),
                                          element_type(input.scalar_type(), call), ReduceOp::mean);
  return started;
}

AxisQueue::Call AxisQueue::all_gather_into(const Tensor& output, const Tensor& input) {
  Call started;
  started.result = output;
  if (!queue_) {
    lockstep::all_gather_into(output, input, axis_, {}, where_);
    return started;
  }
  started.handle = queue_->all_gather(bytes_of(input), bytes_of(output));
  return started;
}

void AxisQueue::wait(Call& call) {
  if (!call.handle) return;
  const AxisCall waiting{"the wait for a started collective", axis_, where_};
  announced(waiting, replicas_of(waiting, {}, GroupSizes::equal), {call.result}, "",
            [&] { call.handle->wait(); });
  call.handle.reset();
  call.result.unsafeGetTensorImpl()->bump_version();
}

}  // namespace lockstep
