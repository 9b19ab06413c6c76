#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <source_location>
#include <stop_token>
#include <thread>

#include <ATen/core/Tensor.h>

#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/collectives/in_place.h"
#include "framework/timeline/recorder.h"

namespace lockstep::collectives {

/// Starts the collectives of in_place.h now and waits for them later, so that a network carries
/// bytes while the replica computes. All replicas start the same calls in the same order and wait
/// for the same ones. Calls end in that order; their tensors are in use until the wait is over.
/// Without overlap, starting a call also completes it: if overlap is switched off, and where it
/// gains nothing (in shared memory, where a collective is work for the CPU). Replicas that take
/// turns in a worker must all have started a call before it can end, or all but one wait for it.
/// For one thread, within the axis' map or job. Errors of calls under way come from wait(). After a
/// failure of the job every later call has that error.
class AxisQueue : private NonCopyable {
 public:
  /// The replica's recorder has calls that go on beside it on the track `track`, and the waits for
  /// them, with the same ids, among its other calls.
  AxisQueue(AxisNames axis_name, bool overlap, const char* track = "started",
            std::source_location where = std::source_location::current());
  /// Gives up calls under way. Other replicas in these calls wait to be ended, or time out.
  ~AxisQueue();

  /// True if a call goes on while its caller does other work.
  [[nodiscard]] bool overlaps() const noexcept { return group_ != nullptr; }
  /// Returns how long an average of so many bytes is on the network, by all_reduce_seconds().
  [[nodiscard]] double seconds_of(std::size_t bytes) const {
    return overlaps() ? group_->all_reduce_seconds(bytes) : 0;
  }
  /// True if the calls of a queue made with `overlap` would go on so.
  [[nodiscard]] static bool would_overlap(bool overlap, bool is_network) {
    return overlap && is_network;
  }

  class Call {
   private:
    friend class AxisQueue;
    Tensor result;
    std::shared_future<void> ended;
    timeline::SpanKind kind{};
    std::uint64_t id = 0;
  };
  [[nodiscard]] Call pmean_(const Tensor& x, ReduceOp op = ReduceOp::mean);
  [[nodiscard]] Call pmean_scatter_into(const Tensor& output, const Tensor& input,
                                        ReduceOp op = ReduceOp::mean);
  [[nodiscard]] Call all_gather_into(const Tensor& output, const Tensor& input);
  /// Waits until the call has ended. Returns at once if an earlier wait() for it has returned.
  void wait(Call& call);

 private:
  Call start(comm::Verb verb, const Tensor& output, const Tensor& input);
  void run_calls(const std::stop_token& stop);

  AxisNames axis_;
  std::source_location where_;
  std::shared_ptr<comm::Communicator> group_;  // nobody else's; none without overlap
  std::unique_ptr<timeline::Recorder::Track> track_;
  std::uint64_t key_ = 0;  // of the queue, the same on all replicas
  std::uint64_t calls_started_ = 0;
  Mutex mutex_;
  std::condition_variable_any changed_;
  // The first one may be running, or just over.
  std::deque<std::packaged_task<void()>> calls_ LOCKSTEP_GUARDED_BY(mutex_);
  std::size_t pending_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // calls that are not over
  std::exception_ptr failure_;  // the first, of the job; the thread's alone
  std::jthread thread_;
};

}  // namespace lockstep::collectives
