#include "framework/comm/collective_queue.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "framework/base/errors.h"
#include "framework/comm/run_lock.h"

namespace lockstep {

struct CollectiveQueue::Started {
  Verb verb;
  bool done = false;  // guarded by the work's mutex, as the error is
  std::exception_ptr error;
};

// What was started and has not ended, in order, and who does it next.
class CollectiveQueue::Work {
 public:
  explicit Work(std::shared_ptr<Communicator> group) : group_(std::move(group)) {}

  std::shared_ptr<Started> add(const Verb& verb) {
    auto started = std::make_shared<Started>(Started{verb, false, nullptr});
    const std::lock_guard lock(mutex_);
    if (failure_) {
      finish(*started, failure_);
    } else {
      under_way_.push_back(started);
      changed_.notify_all();
    }
    return started;
  }

  bool done(const Started& started) const {
    const std::lock_guard lock(mutex_);
    return started.done;
  }

  void wait(const Started& started) {
    if (has_thread_ && !done(started)) {
      const RunLockRelease others_may_run;  // and take part in it
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return started.done; });
    }
    std::unique_lock lock(mutex_);
    while (!started.done) do_next(lock);
    if (started.error) std::rethrow_exception(started.error);
  }

  void set_thread() { has_thread_ = true; }
  // The life of the queue's thread.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return closing_ || !under_way_.empty(); });
      if (closing_) return;
      do_next(lock);
    }
  }

  // No verb begins any more; the one that is being done ends.
  void close() {
    const auto error =
        std::make_exception_ptr(Aborted("the queue of collectives was closed before they ended"));
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (!under_way_.empty()) group_->interrupt(error);
    fail(error);
    changed_.notify_all();
  }

 private:
  static void finish(Started& started, const std::exception_ptr& error) {
    started.error = error;
    started.done = true;
  }

  void fail(const std::exception_ptr& error) {
    if (!failure_) failure_ = error;
    // The verb that is being done has not ended before it leaves its buffers alone.
    while (under_way_.size() > (is_busy_ ? 1 : 0)) {
      finish(*under_way_.back(), failure_);
      under_way_.pop_back();
    }
  }

  // Does the oldest verb, of which there is one. Without the lock.
  void do_next(std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<Started> next = under_way_.front();
    is_busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    bool is_fatal = true;
    try {
      group_->call(next->verb);
    } catch (const ValueError&) {
      error = std::current_exception();
      is_fatal = false;
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    is_busy_ = false;
    under_way_.pop_front();
    finish(*next, error);
    if (error && is_fatal) fail(error);
    changed_.notify_all();
  }

  std::shared_ptr<Communicator> group_;
  bool has_thread_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Started>> under_way_;  // the first may be being done
  std::exception_ptr failure_;
  bool is_busy_ = false;
  bool closing_ = false;
};

CollectiveQueue::Handle::Handle(std::shared_ptr<Work> work, std::shared_ptr<Started> started)
    : work_(std::move(work)), started_(std::move(started)) {}

void CollectiveQueue::Handle::wait() {
  work_->wait(*started_);
}

bool CollectiveQueue::Handle::done() const {
  return work_->done(*started_);
}

CollectiveQueue::CollectiveQueue(std::shared_ptr<Communicator> group, Progress progress) {
  const bool is_network = group->is_network();
  work_ = std::make_shared<Work>(std::move(group));
  if (progress == Progress::caller || (progress == Progress::automatic && !is_network)) return;
  work_->set_thread();
  thread_ = std::thread([work = work_] { work->run(); });
}

CollectiveQueue::~CollectiveQueue() {
  work_->close();
  if (!thread_.joinable()) return;
  const RunLockRelease others_may_run;  // one of them may be doing the verb that is to end
  thread_.join();
}

CollectiveQueue::Handle CollectiveQueue::start(const Verb& verb) {
  return {work_, work_->add(verb)};
}

}  // namespace lockstep
