#pragma once

#include <memory>
#include <optional>
#include <source_location>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/axes/environment.h"
#include "framework/collectives/in_place.h"
#include "framework/comm/collective_queue.h"

namespace lockstep {

/// The collectives of in_place.h as calls that are started now and waited for later, so that a
/// network carries bytes while the replica computes. All replicas start the same in the same order
/// and wait for the same; tensors are in use until the wait is over. Where overlap gains nothing
/// (in shared memory, where a collective is work for the CPU; where a process runs several of the
/// axis' replicas), or is switched off, starting a call also completes it. For one thread, within
/// the axis' map or job. Errors of calls under way come from wait().
class AxisQueue {
 public:
  AxisQueue(AxisNames axis_name, bool overlap,
            std::source_location where = std::source_location::current());

  /// Whether calls go on after they were started.
  [[nodiscard]] bool overlaps() const noexcept { return queue_ != nullptr; }

  class Call {
   private:
    friend class AxisQueue;
    std::optional<CollectiveQueue::Handle> handle;
    Tensor result;
  };
  [[nodiscard]] Call pmean_(const Tensor& x);
  [[nodiscard]] Call pmean_scatter_into(const Tensor& output, const Tensor& input);
  [[nodiscard]] Call all_gather_into(const Tensor& output, const Tensor& input);
  /// Waits until the call has ended. If it was waited for before, returns at once.
  void wait(Call& call);

 private:
  AxisNames axis_;
  std::source_location where_;
  std::unique_ptr<CollectiveQueue> queue_;
};

}  // namespace lockstep
