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

namespace lockstep {
namespace {

class KeptThreads {
 public:
  KeptThreads() = default;
  ~KeptThreads() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    started_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  KeptThreads(const KeptThreads&) = delete;
  KeptThreads& operator=(const KeptThreads&) = delete;

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

// Those of one thread. A forked child has none of its parent's threads and can't even destroy what
// they wait for.
class Keeper {
 public:
  Keeper() = default;
  ~Keeper() { end(); }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  KeptThreads& threads() {
    if (process_ != process_generation()) end();
    process_ = process_generation();
    if (!kept_) kept_ = std::make_unique<KeptThreads>();
    return *kept_;
  }
  void end() {
    if (process_ != process_generation()) (void)kept_.release();
    kept_.reset();
  }

 private:
  std::unique_ptr<KeptThreads> kept_;
  std::uint64_t process_ = 0;
};
thread_local Keeper keeper;

}  // namespace

void run_in_kept_threads(std::int64_t count, std::uint64_t first_node, FirstFailure& failure,
                         const std::function<void(std::int64_t)>& body) {
  KeptThreads& threads = keeper.threads();
  std::mutex mutex;  // guards `last_node`
  std::uint64_t last_node = first_node;
  std::fenv_t callers{};  // rounding, and whether denormal numbers are flushed
  std::fegetenv(&callers);
  threads.run(threads.have(count, failure), [&](std::int64_t index) {
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
  keeper.end();
}

}  // namespace lockstep
