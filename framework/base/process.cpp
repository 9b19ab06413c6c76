#include "framework/base/process.h"

#include <csignal>

#include <signal.h>
#include <sys/resource.h>

namespace lockstep {

void prepare_process() {
  static const bool done = [] {
    struct sigaction action {};
    ::sigaction(SIGPIPE, nullptr, &action);
    if (action.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
    // A full mesh of replicas in threads takes a socket for each pair, twice.
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    return true;
  }();
  (void)done;
}

}  // namespace lockstep
