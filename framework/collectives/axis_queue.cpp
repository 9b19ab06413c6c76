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
  const bool several_in_a_worker = replicas.layout().workers() < replicas.layout().size();
  if (!overlap || !replicas.is_network() || several_in_a_worker) return;
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
  started.handle = queue_->start({.kind = Verb::Kind::all_reduce,
                                  .input = bytes_of(x),
                                  .output = bytes_of(x),
                                  .type = element_type(x.scalar_type(), call),
                                  .op = ReduceOp::mean});
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
  started.handle = queue_->start({.kind = Verb::Kind::reduce_scatter,
                                  .input = bytes_of(input),
                                  .output = bytes_of(output),
                                  .type = element_type(input.scalar_type(), call),
                                  .op = ReduceOp::mean});
  return started;
}

AxisQueue::Call AxisQueue::all_gather_into(const Tensor& output, const Tensor& input) {
  Call started;
  started.result = output;
  if (!queue_) {
    lockstep::all_gather_into(output, input, axis_, {}, where_);
    return started;
  }
  started.handle = queue_->start(
      {.kind = Verb::Kind::all_gather, .input = bytes_of(input), .output = bytes_of(output)});
  return started;
}

void AxisQueue::wait(Call& call) {
  if (!call.handle) return;
  const AxisCall waiting{"the wait for a started collective", axis_, where_};
  announced(waiting, replicas_of(waiting, {}, GroupSizes::equal), {call.result}, "",
            [&] { call.handle->wait(); });
  call.handle.reset();
}

}  // namespace lockstep
