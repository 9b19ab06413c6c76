#pragma once

#include <cstdint>
#include <span>
#include <streambuf>
#include <string>

#include <sys/types.h>

#include "framework/base/non_copyable.h"
#include "framework/replicas/launch.h"

namespace lockstep::replicas {

/// While it lives, what replicas of this process print to stdout goes out with the end of each
/// line, wherever stdout leads. Where they are several, threads of it, std::cout has whole lines,
/// as `prints` says: those of other replicas than the job's first have a prefix or are left out.
/// One at a time.
class ReplicaPrints : private NonCopyable {
 public:
  ReplicaPrints(Prints prints, bool are_several);
  ~ReplicaPrints();

 private:
  bool was_by_line_;
  std::streambuf* cout_before_ = nullptr;  // where it was replaced
};

/// Ends what this thread has printed of a line.
class LastLineEnds : private NonCopyable {
 public:
  LastLineEnds() = default;
  ~LastLineEnds();
};

/// Returns true if a thread of these processes waits in a print for the reader of stdout.
[[nodiscard]] bool wait_for_reader(std::span<const pid_t> processes);

/// What a line of other replicas begins with: "[replica 2] ".
[[nodiscard]] std::string prefix_of_replica(std::int64_t replica);

/// Says on stderr that what a replica prints is left out.
void tell_left_out(const std::string& replica);

}  // namespace lockstep::replicas
