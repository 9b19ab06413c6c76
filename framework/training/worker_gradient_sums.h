#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/mutex.h"
#include "framework/base/range.h"
#include "framework/groups/replica_group.h"
#include "framework/reduce/canonical_order.h"
#include "framework/tree/flat_layout.h"

namespace lockstep::training {

/// Gradients of the replicas that take turns in one worker. Each replica fills a set of buffers and
/// gives it away. Complete subtrees of the canonical order are summed at once, so n replicas that
/// run one after the other need about log2(n) sets.
class WorkerGradientSums {
 public:
  /// A flat tensor a bucket.
  using Set = std::vector<at::Tensor>;

  /// The object that this worker's replicas of a group share: all call this together, and each
  /// keeps the pointer. Its buffers are like the layout's buckets, of their gradients' dtypes.
  [[nodiscard]] static std::shared_ptr<WorkerGradientSums> of_worker(
      groups::ReplicaGroup& replicas, const tree::FlatLayout& layout);

  WorkerGradientSums(const tree::FlatLayout& layout, int replicas_here)
      : layout_(layout), replicas_here_(replicas_here) {}

  /// A set with arbitrary values.
  [[nodiscard]] Set take() {
    const MutexLock lock(mutex_);
    return any_set();
  }
  /// Replica `replica` of the axis gives its gradients away.
  void give(std::int64_t replica, Set set);
  /// After all replicas of the axis have given: what `replica` contributes to the reduction over
  /// all of them. That is the sum of the subtree that begins with it, or -0, which changes no sum.
  [[nodiscard]] Set brought_by(std::int64_t replica);
  /// A replica's reductions are over, and so are all of this worker's: sets are free again.
  void finish();

  /// Bytes of all sets: the part of the worker's replica at `place`.
  [[nodiscard]] std::int64_t bytes(std::int64_t place) const;
  /// How many sets a worker with `replicas` makes. With `wait` these wait for each other before
  /// give(); otherwise each gives before the next takes.
  [[nodiscard]] static std::int64_t sets_of(const Range& replicas, bool wait);

 private:
  struct Sum {
    reduce::Subtree of;
    Set set;
  };
  [[nodiscard]] Set any_set() LOCKSTEP_REQUIRES(mutex_);

  tree::FlatLayout layout_;
  int replicas_here_;
  mutable Mutex mutex_;
  std::vector<Set> free_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Sum> sums_ LOCKSTEP_GUARDED_BY(mutex_);
  Set negative_zeros_ LOCKSTEP_GUARDED_BY(mutex_);
  int given_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::int64_t bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::training
