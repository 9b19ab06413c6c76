#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/base/non_copyable.h"

namespace lockstep::replicas {

/// While it lives this thread is a replica's: "replica 2", or "replica 2 of" a map. If it ends the
/// process, the last line on stderr says so. SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT do as
/// ever, but where the program, or a sanitizer, has a handler of its own, that alone runs. exit()
/// ends with status 3, whatever it is given, and runs no handlers older than the first of these.
class ThreadEnds : private NonCopyable {
 public:
  explicit ThreadEnds(std::string replica);
  ~ThreadEnds();

 private:
  std::string replica_;
};

/// Runs the function of `replica`, named as for ThreadEnds. A process forked there must end by
/// itself: one that comes out of it says so on stderr and to `tell`, and ends with status 1.
void run_in_one_process(
    const std::string& replica, const std::function<void()>& function,
    const std::function<void(const std::string&)>& tell = [](const std::string&) {});

/// The number of such processes that run_in_one_process has ended so far.
[[nodiscard]] std::uint64_t forked_returns();

}  // namespace lockstep::replicas
