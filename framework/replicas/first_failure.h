#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>

namespace lockstep {

/// The first exception of several replicas in threads: the root cause, since the others are ended
/// by what it sets off.
class FirstFailure {
 public:
  /// `end_others` is called once, on the first failure, with its text.
  explicit FirstFailure(std::function<void(const std::string&)> end_others);

  /// To be called in a catch block of replica `index`.
  void record(std::int64_t index) noexcept;

  [[nodiscard]] bool happened() const;

  /// Throws the first failure, if there is one: an Error keeps its type and gains the replica's
  /// index, anything else is nested in a ReplicaError with its text.
  void rethrow() const;

 private:
  std::function<void(const std::string&)> end_others_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::int64_t index_ = 0;
};

/// The text of an exception, without the backtrace that LibTorch's have.
[[nodiscard]] std::string text_of(const std::exception& error);

}  // namespace lockstep
