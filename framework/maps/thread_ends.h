#pragma once

#include <string>

#include "framework/base/non_copyable.h"

namespace lockstep::maps {

/// While this lives this thread is a replica's: "replica 2", or "replica 2 of" a map. If it ends
/// the process, the last line on stderr says so. SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT do as
/// ever; if the program, or a sanitizer, has a handler of its own, that alone runs. exit() ends
/// with status 3, whatever it is given, and runs no handlers older than the first of these.
class ThreadEnds : private NonCopyable {
 public:
  explicit ThreadEnds(std::string replica);
  ~ThreadEnds();

 private:
  std::string replica_;
};

}  // namespace lockstep::maps
