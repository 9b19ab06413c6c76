#pragma once

#include <memory>
#include <thread>

#include "framework/comm/communicator.h"

namespace lockstep {

/// Verbs of a group that are started now and waited for later, so that the caller can do something
/// else meanwhile. All replicas start the same verbs in the same order; any number may be under way
/// at once, and they end in that order. Buffers are in use until the verb has ended.
///
/// A failure of the job fails every verb that is under way and every one that is started later:
/// each handle's wait() throws that error. A ValueError is that of its own verb alone. The queue
/// and its handles are for one thread at a time.
class CollectiveQueue {
  struct Started;
  class Work;

 public:
  /// Which thread does the work. `automatic` is a thread of the queue's over a network, and the
  /// caller in shared memory: there a verb is nothing but work, and a second thread on the same
  /// core gains nothing (2 processes on 2 cores, 5 buckets of 1 MiB with 1 ms of work before each:
  /// 5.05 ms of work, 5.45 with a thread, 5.49 by the caller, 5.40 without a queue).
  enum class Progress {
    automatic,
    thread,  ///< a thread of the queue's, as soon as the others have come
    caller,  ///< whoever waits, then: done() alone moves nothing
  };

  /// A verb that was started. Copies refer to the same verb. It may outlive the queue.
  class Handle {
   public:
    /// Returns when the verb has ended; throws what it has failed with. May be called again.
    void wait();
    /// Whether wait() would return or throw at once.
    [[nodiscard]] bool done() const;

   private:
    friend class CollectiveQueue;
    Handle(std::shared_ptr<Work> work, std::shared_ptr<Started> started);
    std::shared_ptr<Work> work_;
    std::shared_ptr<Started> started_;
  };

  /// Verbs of `group`, on which nobody else calls verbs while the queue lives: pass a subgroup on a
  /// channel of its own.
  explicit CollectiveQueue(std::shared_ptr<Communicator> group,
                           Progress progress = Progress::automatic);
  /// Verbs that are under way fail with Aborted, and the group is of no use afterwards: others who
  /// need this replica for them wait until they are told otherwise, or for their timeout.
  ~CollectiveQueue();
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;

  /// Starts a verb, which is checked when it is done. Its sizes, if it has some, are in use as its
  /// buffers are.
  [[nodiscard]] Handle start(const Verb& verb);

 private:
  std::shared_ptr<Work> work_;
  std::thread thread_;
};

}  // namespace lockstep
