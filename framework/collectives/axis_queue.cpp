#include "framework/collectives/axis_queue.h"

#include <chrono>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/collectives/differentiable.h"
#include "framework/comm/run_lock.h"

namespace lockstep::collectives {

AxisQueue::AxisQueue(AxisNames axis_name, bool overlap, const char* track,
                     std::source_location where)
    : axis_(std::move(axis_name)), where_(where) {
  const AxisCall call{"collectives that are started", axis_, where_};
  groups::ReplicaGroup& replicas = replicas_of(call, {}, GroupSizes::equal);
  if (!would_overlap(overlap, replicas.is_network())) return;
  // This queue's own channel: its number is that of this call, which all replicas count alike.
  const auto call_number = current_environment()->next_call(replicas);
  group_ = replicas.subgroup(consecutive(0, replicas.size()), call_number.number);
  key_ = call_number.key;
  if (timeline::track_here != nullptr) track_ = timeline::track_here->beside(track);
  thread_ = std::jthread([this](const std::stop_token& stop) { run_calls(stop); });
}

AxisQueue::~AxisQueue() {
  if (!group_) return;
  thread_.request_stop();
  {
    const MutexLock lock(mutex_);
    if (pending_ > 0) {
      group_->interrupt(std::make_exception_ptr(
          Aborted("the queue of collectives was closed before they ended")));
    }
  }
  const comm::RunLockRelease
      others_may_run;  // one of them may be needed for the call that is to end
  thread_.join();
}

void AxisQueue::run_calls(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(lock, stop, [&]() LOCKSTEP_REQUIRES(mutex_) { return !calls_.empty(); });
    if (stop.stop_requested()) return;
    auto& next = calls_.front();  // stays where it is while others are added
    lock.unlock();
    next();
    lock.lock();
    calls_.pop_front();
  }
}

AxisQueue::Call AxisQueue::start(comm::Verb verb, const Tensor& output, const Tensor& input) {
  verb.input = bytes_of(input);
  verb.output = bytes_of(output);
  Call call;
  call.kind = verb.kind == comm::Verb::Kind::all_gather ? timeline::SpanKind::gather
                                                        : timeline::SpanKind::reduction;
  call.id = Key(key_).fold(calls_started_++).bits();
  // The task holds the tensors, whatever becomes of the caller.
  std::packaged_task<void()> task([this, verb, output, input, kind = call.kind, id = call.id] {
    // Counts down before the caller hears of the end, and may close the queue: an interrupt would
    // then reach other replicas here that are about to hear of the end, too.
    const std::shared_ptr<void> until_over(nullptr, [this](void*) {
      const MutexLock lock(mutex_);
      --pending_;
    });
    if (failure_) std::rethrow_exception(failure_);
    const timeline::RecordedSpan span(track_.get(),
                                      {.kind = kind, .bytes = input.nbytes(), .id = id});
    try {
      group_->call(verb);
    } catch (const ValueError&) {
      throw;  // an error of this call alone
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  });
  call.result = output;
  call.ended = task.get_future();
  {
    const MutexLock lock(mutex_);
    ++pending_;
    calls_.push_back(std::move(task));
  }
  changed_.notify_all();
  return call;
}

AxisQueue::Call AxisQueue::pmean_(const Tensor& x, ReduceOp op) {
  if (!group_) {
    const timeline::CallKindScope recorded(timeline::SpanKind::reduction);
    pmean_by(op, x, axis_, where_);
    return {};
  }
  const ElementType type = element_type(x.scalar_type(), {"pmean_", axis_, where_});
  return start({.kind = comm::Verb::Kind::all_reduce, .type = type, .op = op}, x, x);
}

AxisQueue::Call AxisQueue::pmean_scatter_into(const Tensor& output, const Tensor& input,
                                              ReduceOp op) {
  if (!group_) {
    const timeline::CallKindScope recorded(timeline::SpanKind::reduction);
    pmean_scatter_by(op, output, input, axis_, where_);
    return {};
  }
  const ElementType type = element_type(input.scalar_type(), {"pmean_scatter_into", axis_, where_});
  return start({.kind = comm::Verb::Kind::reduce_scatter, .type = type, .op = op}, output, input);
}

AxisQueue::Call AxisQueue::all_gather_into(const Tensor& output, const Tensor& input) {
  if (!group_) {
    const timeline::CallKindScope recorded(timeline::SpanKind::gather);
    lockstep::all_gather_into(output, input, axis_, {}, where_);
    return {};
  }
  return start({.kind = comm::Verb::Kind::all_gather}, output, input);
}

void AxisQueue::wait(Call& call) {
  if (!call.ended.valid()) return;
  const AxisCall waiting{"the wait for a started collective", axis_, where_};
  const timeline::CallKindScope recorded(call.kind);
  const auto wait = [&] {
    if (call.ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      const comm::RunLockRelease others_may_run;  // and take part in it
      call.ended.wait();
    }
    call.ended.get();
  };
  announced(waiting, replicas_of(waiting, {}, GroupSizes::equal), {call.result}, "", wait, call.id);
  call.ended = {};
}

}  // namespace lockstep::collectives
