#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// The replicas that take part in each way to fall out of step.
constexpr std::int64_t kReplicas = 4;
/// The time by which a replica that waits in vain must know it; collectives' timeout is 60 s. The
/// thread sanitizer takes its time.
#ifdef __SANITIZE_THREAD__
constexpr std::chrono::seconds kSoon{10};
#else
constexpr std::chrono::seconds kSoon{1};
#endif
/// The time by which a job must have ended.
constexpr std::chrono::seconds kJobEnds{5};

/// A way in which one replica, `odd`, falls out of step with the three others.
struct OutOfStep {
  std::string name;
  /// True if the replicas are a 2 x 2 mesh with the axes "row" and "column"; otherwise the axis is
  /// "data".
  bool on_mesh = false;
  /// Run by each replica.
  std::function<void(std::int64_t odd)> body;
  /// The parts of the message: # stands for the odd replica, @ for a line of the source.
  std::vector<std::string> message;
  /// The number of different source lines of the calls in the message.
  std::size_t lines = 1;
  /// The errors that end the others, and the odd one ("": it returns).
  std::string others_end = "CollectiveMismatch";
  std::string odd_ends = "CollectiveMismatch";
};

/// Returns all ways, forward and backward.
[[nodiscard]] std::vector<OutOfStep> ways_out_of_step();

/// The end of a replica's body.
struct Ending {
  std::string type = {};               ///< the error's, "" if the body returned
  std::string text = {};               ///< the error's
  std::exception_ptr error = nullptr;  ///< to throw on
  double seconds = 0;                  ///< from the body's start
};

/// Runs the way's body in a replica.
[[nodiscard]] Ending ending_of(const OutOfStep& way, std::int64_t odd);
/// Returns this replica's number among the four.
[[nodiscard]] std::int64_t own_number(const OutOfStep& way);
/// Returns what is wrong with the end of replica number `own`, or "".
[[nodiscard]] std::string fault_of(const Ending& ending, const OutOfStep& way, std::int64_t odd,
                                   std::int64_t own);
/// Returns what is missing in an error's text, or "".
[[nodiscard]] std::string missing_in(const std::string& text, const OutOfStep& way,
                                     std::int64_t odd);

}  // namespace lockstep::testing
