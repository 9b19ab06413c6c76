#include "framework/maps/kept_threads.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <deque>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/SequenceNumber.h>

#include "framework/base/errors.h"
#include "framework/base/mutex.h"
#include "framework/base/process.h"
#include "framework/comm/shared/flag.h"

namespace lockstep::maps {
namespace {

// A short map is over before a core that sleeps would be awake again.
constexpr comm::Flag::Patience kPatience{0, std::chrono::microseconds(200)};
constexpr std::chrono::hours kLong{1};

class KeptThreads {
 public:
  const std::uint64_t process = process_generation();

  ~KeptThreads() {
    ending_ = true;
    for (comm::Flag& started : started_) started.raise(started.value() + 1);
    for (std::thread& thread : threads_) thread.join();
  }

  void run(std::int64_t wanted, FirstFailure& failure,
           const std::function<void(std::int64_t)>& body) {
    while (std::ssize(started_) < wanted) started_.emplace_back();
    add_threads(threads_, wanted, failure, [this](std::int64_t index) {
      work(started_[static_cast<std::size_t>(index)], index);
    });
    const auto count = std::min(std::ssize(threads_), wanted);
    if (count == 0) return;
    body_ = &body;
    unfinished_ = count;
    for (std::int64_t i = 0; i < count; ++i) {
      comm::Flag& started = started_[static_cast<std::size_t>(i)];
      started.raise(started.value() + 1);
    }
    ++calls_;
    while (!finished_.wait(calls_, kPatience, kLong)) {
    }
  }

 private:
  void work(comm::Flag& started, std::int64_t index) {
    for (std::uint32_t call = 1;; ++call) {
      while (!started.wait(call, {}, kLong)) {
      }
      if (ending_) return;
      (*body_)(index);
      if (--unfinished_ == 0) finished_.raise(finished_.value() + 1);
    }
  }

  std::vector<std::thread> threads_;
  std::deque<comm::Flag> started_;  // raised for each call in which the thread takes part
  comm::Flag finished_{};           // raised at the end of each call
  std::uint32_t calls_ = 0;
  const std::function<void(std::int64_t)>* body_ = nullptr;
  std::atomic<std::int64_t> unfinished_{0};
  std::atomic<bool> ending_{false};
};

// A forked child has none of its parent's threads and can't even destroy their flags.
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
  Mutex mutex;  // guards `last_node`
  std::uint64_t last_node = first_node;
  std::fenv_t callers{};  // rounding, and the flushing of denormal numbers
  std::fegetenv(&callers);
  kept->run(count, failure, [&](std::int64_t index) {
    std::fesetenv(&callers);
    advance_nodes(first_node);
    if (const auto error = thrown_by([&] { body(index); })) failure.record(index, error);
    const MutexLock lock(mutex);
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

}  // namespace lockstep::maps
