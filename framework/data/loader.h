#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/data/dataset.h"

namespace lockstep {

struct LoaderOptions {
  std::int64_t threads = 1;  ///< 0: next() makes the batch itself
  std::int64_t ahead = 4;    ///< the most batches that are made and not yet taken
};

/// Makes batches of a data set ahead, in threads of its own. The batches are those that the data
/// set gives, in the order of their requests, whatever the number of threads. For one thread.
class Loader : private NonCopyable {
 public:
  /// ValueError for options below 0, and for `ahead` below 1. `data` must live as long.
  Loader(const Dataset& data, const LoaderOptions& options);
  /// Gives up what is not taken.
  ~Loader();

  /// Asks for a batch, as Dataset::batch() makes it. Does not wait.
  void request(std::vector<std::int64_t> indices, std::int64_t epoch);
  /// The next batch asked for. Waits. Throws what the data set does; Error if no request is left.
  [[nodiscard]] Batch next();

 private:
  struct Request {
    std::vector<std::int64_t> indices;
    std::int64_t epoch = 0;
    bool is_done = false;
    Batch batch{};
    std::exception_ptr failure{};
  };
  void work();
  void make(Request& request) const;

  const Dataset& data_;
  std::size_t ahead_;
  Mutex mutex_;
  Condition wanted_;  // there is a request that may begin, or the end
  Condition made_;
  // Not yet taken, in their order …
  std::deque<std::shared_ptr<Request>> requests_ LOCKSTEP_GUARDED_BY(mutex_);
  std::size_t begun_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // … of which the first so many are begun
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // end before the rest
};

}  // namespace lockstep
