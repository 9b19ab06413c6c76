#include "framework/base/process.h"

#include <atomic>
#include <csignal>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::atomic<std::uint64_t> generation{0};

// A new descriptor gets the lowest free number.
void occupy_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    const int mode = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    const int taken = ::open("/dev/null", mode);
    if (taken > STDERR_FILENO) ::close(taken);  // another thread was first
  }
}

}  // namespace

void prepare_process() {
  occupy_standard_streams();
  [[maybe_unused]] static const bool done = [] {
    struct sigaction action {};
    ::sigaction(SIGPIPE, nullptr, &action);
    if (action.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
    ::sigaction(SIGXFSZ, nullptr, &action);
    if (action.sa_handler == SIG_DFL) std::signal(SIGXFSZ, SIG_IGN);
    // A full mesh of replicas in threads takes a socket for each pair, twice.
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    return true;
  }();
}

std::uint64_t process_generation() noexcept {
  [[maybe_unused]] static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { ++generation; });
  return generation.load(std::memory_order_relaxed);
}

}  // namespace lockstep
