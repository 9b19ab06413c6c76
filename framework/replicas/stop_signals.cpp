#include "framework/replicas/stop_signals.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "framework/base/logging.h"
#include "framework/base/text.h"

namespace lockstep::replicas {
namespace {

constexpr std::array kStopSignals{SIGINT, SIGTERM};

// A handler may touch little else than these.
std::atomic<Word*> first_asks{nullptr};  // stored here, the first signal only asks
std::atomic<int> ending_signal{0};
std::atomic<int> told{-1};  // the pipe's end that is written to

void note_signal(int number) {
  Word* const asked = first_asks;
  if (asked != nullptr && asked->replace(0, static_cast<std::uint64_t>(number))) return;
  const int saved = errno;
  int none = 0;
  ending_signal.compare_exchange_strong(none, number);
  const char byte = 0;
  (void)!::write(told, &byte, 1);
  errno = saved;
}

// The handler that tells this end of a pipe.
auto handler_that_tells(int end, Word* asked) {
  first_asks = asked;
  ending_signal = 0;
  told = end;
  return note_signal;
}

const char* name_of_stop(int signal) noexcept {
  return signal == SIGINT ? "Ctrl-C" : "SIGTERM";
}

}  // namespace

StopHandler::StopHandler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a replica that goes on does not notice
  for (std::size_t i = 0; i < old_.size(); ++i) {
    ::sigaction(kStopSignals[i], nullptr, &old_[i]);
    if (old_[i].sa_handler != SIG_IGN) ::sigaction(kStopSignals[i], &action, nullptr);
  }
}

StopHandler::~StopHandler() {
  for (std::size_t i = 0; i < old_.size(); ++i) ::sigaction(kStopSignals[i], &old_[i], nullptr);
}

StopSignals::StopSignals(Word* asked)
    : asked_(asked),
      pipe_(make_pipe(O_NONBLOCK)),
      handler_(handler_that_tells(pipe_.second.get(), asked)) {}

int StopSignals::asked() const noexcept {
  return asked_ == nullptr ? 0 : static_cast<int>(asked_->load());
}

int StopSignals::signal() const noexcept {
  return ending_signal;
}

void StopSignals::wait(std::chrono::milliseconds time) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + time;
  for (auto left = time; left.count() > 0 && signal() == 0;
       left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now())) {
    pollfd polled{descriptor(), POLLIN, 0};
    ::poll(&polled, 1, static_cast<int>(left.count()));
  }
}

std::string stopped_text(int signal) {
  return str("stopped by ", name_of_stop(signal), "; all replicas have ended");
}

void tell_asked(int signal) {
  leave_progress_line();
  log_warning(str(name_of_stop(signal),
                  ": replicas end at their next step; a second one ends them at once"));
}

void leave_progress_line() {
  if (::isatty(STDERR_FILENO) == 1) (void)!::write(STDERR_FILENO, "\n", 1);
}

}  // namespace lockstep::replicas
