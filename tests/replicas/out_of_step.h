#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// So many replicas take part in each way to fall out of step.
constexpr std::int64_t kReplicas = 4;
/// A replica that waits in vain must know it by then; collectives' timeout is 60 s. The thread
/// sanitizer takes its time.
#ifdef __SANITIZE_THREAD__
constexpr std::chrono::seconds kSoon{10};
#else
constexpr std::chrono::seconds kSoon{1};
#endif
/// A job must have ended by then.
constexpr std::chrono::seconds kJobEnds{5};

/// A way in which one replica, `odd`, falls out of step with the three others.
struct OutOfStep {
  std::string name;
  /// Whether the replicas are a 2 x 2 mesh with the axes "row" and "column"; otherwise the axis is
  /// "data".
  bool on_mesh = false;
  /// What each replica runs.
  std::function<void(std::int64_t odd)> body;
  /// What the message must contain: # stands for the odd replica, @ for a line of the source.
  std::vector<std::string> message;
  /// In how many different lines the calls in the message stand.
  std::size_t lines = 1;
  /// What ends the others, and the odd one ("": it returns).
  std::string others_end = "CollectiveMismatch";
  std::string odd_ends = "CollectiveMismatch";
};

/// All ways, forward and backward.
[[nodiscard]] std::vector<OutOfStep> ways_out_of_step();

/// How a replica's body ended.
struct Ending {
  std::string type = {};               ///< of the error, "" if it returned
  std::string text = {};               ///< of the error
  std::exception_ptr error = nullptr;  ///< to throw on
  double seconds = 0;                  ///< from the body's start
};

/// Runs the body in a replica.
[[nodiscard]] Ending ending_of(const OutOfStep& way, std::int64_t odd);
/// This replica's number of the four.
[[nodiscard]] std::int64_t own_number(const OutOfStep& way);
/// What is wrong with the way in which replica number `own` ended, or "".
[[nodiscard]] std::string fault_of(const Ending& ending, const OutOfStep& way, std::int64_t odd,
                                   std::int64_t own);
/// What is missing in an error's text, or "".
[[nodiscard]] std::string missing_in(const std::string& text, const OutOfStep& way,
                                     std::int64_t odd);

}  // namespace lockstep::testing
