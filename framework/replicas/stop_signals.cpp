#include "framework/replicas/stop_signals.h"

#include <cerrno>
#include <csignal>
#include <cstddef>

#include <fcntl.h>
#include <unistd.h>

namespace lockstep::replicas {
namespace {

constexpr std::array kStopSignals{SIGINT, SIGTERM};

// A handler may touch little else than these.
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t told = -1;  // the pipe's end that is written to

void note_signal(int number) {
  const int saved = errno;
  if (first_signal == 0) first_signal = number;
  const char byte = 0;
  (void)!::write(told, &byte, 1);
  errno = saved;
}

// The handler that tells this end of a pipe.
auto handler_that_tells(int end) {
  first_signal = 0;
  told = end;
  return note_signal;
}

}  // namespace

StopHandler::StopHandler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  for (std::size_t i = 0; i < old_.size(); ++i) {
    ::sigaction(kStopSignals[i], nullptr, &old_[i]);
    if (old_[i].sa_handler != SIG_IGN) ::sigaction(kStopSignals[i], &action, nullptr);
  }
}

StopHandler::~StopHandler() {
  for (std::size_t i = 0; i < old_.size(); ++i) ::sigaction(kStopSignals[i], &old_[i], nullptr);
}

StopSignals::StopSignals()
    : pipe_(make_pipe(O_NONBLOCK)), handler_(handler_that_tells(pipe_.second.get())) {}

int StopSignals::signal() const noexcept {
  return first_signal;
}

}  // namespace lockstep::replicas
