#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"

namespace lockstep::maps {

/// The root cause among the exceptions of replicas in threads. The first failure ends the others.
/// It need not be the cause: a replica's own error may come after errors of replicas that lost it.
class FirstFailure {
 public:
  /// Calls `end_others` once, on the first failure, with its text. Messages count replicas from
  /// `first`, and say that they are `of` an axis unless that is "".
  FirstFailure(std::int64_t first, std::function<void(const std::string&)> end_others,
               std::string of = "")
      : first_(first), end_others_(std::move(end_others)), of_(std::move(of)) {}

  /// Records that replica `index`, counted from 0, has failed; by default with the caught error.
  void record(std::int64_t index,
              const std::exception_ptr& error = std::current_exception()) noexcept;

  [[nodiscard]] bool happened() const { return cause().has_value(); }

  /// The root cause of all failures so far.
  struct Cause {
    std::int64_t replica;  ///< counted from `first`
    std::exception_ptr error;
    int doubt;  ///< see ErrorTraits
  };
  [[nodiscard]] std::optional<Cause> cause() const;

  /// Throws the root cause, if there is one, once all replicas have ended. An Error keeps its type
  /// and gains the replica's index; any other exception is nested in a ReplicaError with its text.
  void rethrow() const;

 private:
  std::int64_t first_;
  std::function<void(const std::string&)> end_others_;
  std::string of_;
  mutable Mutex mutex_;
  std::optional<Cause> cause_ LOCKSTEP_GUARDED_BY(mutex_);
};

/// Adds threads that run `body` with their index, counted from `first`, until there are `count`. If
/// the system does not start a thread, its index has failed, and no further thread is started.
void add_threads(std::vector<std::thread>& threads, std::int64_t count, FirstFailure& failure,
                 const std::function<void(std::int64_t)>& body, std::int64_t first = 0);

/// Returns an exception's text without LibTorch's backtraces, cut if long, with numbers if memory
/// ran out.
[[nodiscard]] std::string text_of(const std::exception& error);
[[nodiscard]] std::string text_of(const std::exception_ptr& error);
/// Returns the same text behind the type of an Error: "DataError: a.png is cut short".
[[nodiscard]] std::string typed_text(const std::exception_ptr& error);

}  // namespace lockstep::maps
