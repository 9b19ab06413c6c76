#include "framework/replicas/stop_signals.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// A handler may touch little else than these.
volatile std::sig_atomic_t first_signal = 0;
int pipe_ends[2] = {-1, -1};

void note_signal(int number) {
  const int saved = errno;
  if (first_signal == 0) first_signal = number;
  const char byte = 0;
  (void)!::write(pipe_ends[1], &byte, 1);
  errno = saved;
}

}  // namespace

StopSignals::StopSignals() {
  if (::pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw CommError(str("launch: cannot make a pipe: ", std::strerror(errno)));
  }
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  ::sigaction(SIGINT, &action, &old_interrupt_);
  ::sigaction(SIGTERM, &action, &old_terminate_);
  // What the caller ignores stays ignored.
  if (old_interrupt_.sa_handler == SIG_IGN) ::sigaction(SIGINT, &old_interrupt_, nullptr);
  if (old_terminate_.sa_handler == SIG_IGN) ::sigaction(SIGTERM, &old_terminate_, nullptr);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &old_interrupt_, nullptr);
  ::sigaction(SIGTERM, &old_terminate_, nullptr);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

int StopSignals::signal() const noexcept {
  return first_signal;
}

int StopSignals::descriptor() const noexcept {
  return pipe_ends[0];
}

}  // namespace lockstep
