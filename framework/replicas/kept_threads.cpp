#include "framework/replicas/kept_threads.h"

#include <algorithm>
#include <cfenv>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/SequenceNumber.h>

#include "framework/base/process.h"

namespace lockstep::replicas {
namespace {

// The threads that stay for one thread.
class KeptThreads {
 public:
  const std::uint64_t process = process_generation();

  ~KeptThreads() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    started_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // As many threads as there are of `wanted`.
  std::int64_t have(std::int64_t wanted, FirstFailure& failure) {
    add_threads(threads_, wanted, failure, [this](std::int64_t) { work(); });
    return std::min(static_cast<std::int64_t>(threads_.size()), wanted);
  }

  void run(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    std::unique_lock lock(mutex_);
    body_ = &body;
    count_ = unfinished_ = count;
    next_ = 0;
    ++call_;
    if (count == static_cast<std::int64_t>(threads_.size())) {
      lock.unlock();
      started_.notify_all();
      lock.lock();
    } else {
      // Under the lock: one that is through already would be woken in place of another.
      for (std::int64_t i = 0; i < count; ++i) started_.notify_one();
    }
    finished_.wait(lock, [&] { return unfinished_ == 0; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (std::uint64_t last = 0;;) {
      started_.wait(lock, [&] { return ending_ || (call_ != last && next_ < count_); });
      if (ending_) return;
      last = call_;
      const std::int64_t index = next_++;
      lock.unlock();
      (*body_)(index);
      lock.lock();
      if (--unfinished_ == 0) finished_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable started_;
  std::condition_variable finished_;
  const std::function<void(std::int64_t)>* body_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t next_ = 0;
  std::int64_t unfinished_ = 0;
  std::uint64_t call_ = 0;
  bool ending_ = false;
};

// A forked child has none of its parent's threads and can't even destroy what they wait for.
struct DeleteInOwnProcess {
  void operator()(const KeptThreads* threads) const {
    if (threads->process == process_generation()) delete threads;
  }
};
thread_local std::unique_ptr<KeptThreads, DeleteInOwnProcess> kept;

}  // namespace

void run_in_kept_threads(std::int64_t count, std::uint64_t first_node, FirstFailure& failure,
                         const std::function<void(std::int64_t)>& body) {
  if (!kept || kept->process != process_generation()) kept.reset(new KeptThreads);
  std::mutex mutex;  // guards `last_node`
  std::uint64_t last_node = first_node;
  std::fenv_t callers{};  // rounding, and whether denormal numbers are flushed
  std::fegetenv(&callers);
  kept->run(kept->have(count, failure), [&](std::int64_t index) {
    std::fesetenv(&callers);
    advance_nodes(first_node);
    try {
      body(index);
    } catch (...) {
      failure.record(index);
    }
    const std::lock_guard lock(mutex);
    last_node = std::max(last_node, next_node());
  });
  advance_nodes(last_node);
}

std::uint64_t next_node() {
  return at::sequence_number::peek();
}

void advance_nodes(std::uint64_t node) {
  for (std::uint64_t now = next_node(); now < node; ++now) at::sequence_number::get_and_increment();
}

void end_kept_threads() {
  kept.reset();
}

}  // namespace lockstep::replicas
