#pragma once

#include <span>

#include <sys/types.h>

#include "framework/base/non_copyable.h"

namespace lockstep::launcher {

/// While this lives, each line that this process prints to stdout goes out as the line ends,
/// wherever stdout leads. One object at a time.
class LinesGoOut : private NonCopyable {
 public:
  LinesGoOut();
  ~LinesGoOut();

 private:
  bool was_by_line_;
};

/// Returns true if a thread of these processes waits in a print for the reader of stdout.
[[nodiscard]] bool wait_for_reader(std::span<const pid_t> processes);

}  // namespace lockstep::launcher
