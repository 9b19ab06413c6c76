#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "framework/base/descriptor.h"
#include "framework/base/non_copyable.h"
#include "trainers/bench/measuring/workplace.h"
#include "trainers/bench/systems/system.h"

namespace lockstep::bench {

/// The time that a batch of calls took.
struct Ran {
  double seconds = 0;              ///< from the first replica's begin to the last one's end
  std::vector<double> parts = {};  ///< of them, mean over the replicas; see ReplicaTask::parts()
  std::vector<double> largest_parts = {};  ///< the same, the largest of any replica
};

/// The running replicas of a system. Errors name the system; a process that ends, or says nothing
/// for two minutes, is a CommError with the last lines of what it printed. All waiting ends with
/// Stopped when a signal comes.
class Workers : private NonCopyable {
 public:
  /// Starts the replicas; await_start() waits until they are ready.
  Workers(const Workplace& workplace, const System& system, std::int64_t replicas);
  /// Ends the replicas, with little patience if finish() was not called.
  ~Workers();

  [[nodiscard]] const System& system() const noexcept { return *system_; }

  void await_start() { (void)await_answers("hello"); }
  /// Makes the buffers of an operation; see ReplicaTask::prepare. Returns replica 0's note.
  std::string prepare(const std::string& operation, std::int64_t bytes);
  /// Runs a batch of `calls` calls.
  Ran run(std::int64_t calls);
  [[nodiscard]] ProcessMemory memory();
  /// Asks the replicas to end. The destructor waits for `patience`, then it kills them.
  void finish(std::chrono::milliseconds patience);

 private:
  struct Process {
    pid_t pid = -1;
    Descriptor handle;  // a pidfd: readable once it has ended
  };

  std::vector<std::string> ask(const std::string& request, const std::string& expected);
  std::vector<std::string> await_answers(const std::string& expected);
  void await_input();
  [[noreturn]] void fail(const std::string& what) const;
  [[nodiscard]] bool reaped_within(std::chrono::milliseconds patience);

  const Workplace* workplace_;
  const System* system_;
  std::int64_t replicas_;
  std::size_t links_;  // replicas that are asked
  testing::TemporaryFolder folder_;
  Descriptor output_;
  Descriptor answers_;
  std::vector<Descriptor> commands_;
  std::vector<Process> processes_;
  std::string received_;
  std::chrono::milliseconds patience_;
};

/// All systems of a measurement at once.
class Crew : private NonCopyable {
 public:
  /// Starts all systems side by side, with `replicas` replicas each, and waits until all are ready.
  Crew(const Workplace& workplace, const std::vector<System>& systems, std::int64_t replicas);
  /// Ends all systems side by side, unless finish() has done so.
  ~Crew();

  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  [[nodiscard]] Workers& operator[](std::size_t i) const { return *members_[i]; }
  /// Ends all systems side by side, with more patience: no more measurements come.
  void finish();

 private:
  Crew() = default;

  std::vector<std::unique_ptr<Workers>> members_;
};

}  // namespace lockstep::bench
