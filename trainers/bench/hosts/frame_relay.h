#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "framework/base/descriptor.h"

namespace lockstep::testing {

/// A network device in this process's network namespace whose frames are read from and written to
/// the descriptor. It is gone once that is closed.
[[nodiscard]] Descriptor open_tap(const std::string& name);

/// Two devices whose frames are handed on from one to the other.
struct Cable {
  Descriptor host;
  Descriptor port;
};

/// Hands frames on until the process is killed: those from a host `delay` after they have come,
/// those to a host at once. (These kernels have no netem.)
[[noreturn]] void relay_frames(const std::vector<Cable>& cables, std::chrono::nanoseconds delay);

}  // namespace lockstep::testing
