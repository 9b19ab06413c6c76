#include "framework/launch/stop_signals.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/logging.h"
#include "framework/base/output.h"
#include "framework/base/poll_set.h"

namespace lockstep::launcher {
namespace {

using Handler = void (*)(int);

std::atomic<Handler> newest_handler{nullptr};

void call_newest_handler(int number) {
  if (const Handler handler = newest_handler) handler(number);
}

Handler handler_of(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

// The signals that the newest StopSignals hears. A handler may touch little else than such atomics.
struct Heard {
  std::atomic<Word*> asked{nullptr};   // if set: gets the first signal, which only asks
  std::atomic<Handler> end{nullptr};   // called by a signal that ends the job
  std::atomic<pid_t> process{0};       // the process whose signals these are; not a fork
  std::atomic<std::int64_t> first{0};  // when this process' first Ctrl-C or SIGTERM came
  std::atomic<int> too_early{0};       // a signal that came too early to be the second
  std::atomic<int> ending{0};          // the signal that ends the job
  std::atomic<int> pipe{-1};           // gets a byte once a signal ends the job
};
Heard heard;

// Returns milliseconds, never 0.
std::int64_t stop_clock() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{1} + time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

bool may_end(int signal) {
  return signal == SIGINT || signal == SIGTERM;
}

// Returns true if the signal only asks.
bool has_asked(int number) {
  Word* const asked = heard.asked;
  if (asked == nullptr) return false;
  asked->replace(0, static_cast<std::uint64_t>(number));
  if (!may_end(number)) return true;
  std::int64_t first = 0;
  const std::int64_t time = stop_clock();
  if (heard.first.compare_exchange_strong(first, time)) return true;
  if (time - first >= StopSignals::kPatience.count()) return false;
  heard.too_early = number;
  return true;
}

void end_fork(int number) {
  if (const Handler end = heard.end) end(number);
  std::signal(number, SIG_DFL);
  (void)::raise(number);
}

void note_signal(int number) {
  const int saved = errno;
  if (::getpid() != heard.process) {
    end_fork(number);
  } else if (!has_asked(number)) {
    if (const Handler end = heard.end) end(number);
    int none = 0;
    heard.ending.compare_exchange_strong(none, number);
    const char byte = 0;
    (void)!::write(heard.pipe, &byte, 1);
  }
  errno = saved;
}

}  // namespace

const char* name_of_stop(int signal) noexcept {
  constexpr std::pair<int, const char*> kNames[] = {{SIGINT, "Ctrl-C"},
                                                    {SIGHUP, "SIGHUP"},
                                                    {SIGUSR1, "SIGUSR1"},
                                                    {SIGUSR2, "SIGUSR2"},
                                                    {SIGXCPU, "SIGXCPU"}};
  for (const auto& [number, name] : kNames) {
    if (number == signal) return name;
  }
  return "SIGTERM";
}

int status_of_stop(int signal) noexcept {
  return signal == SIGINT || signal == SIGHUP ? 128 + signal : 128 + SIGTERM;
}

bool is_status_of_stop(int status) noexcept {
  return status > 128;
}

StopHandler::StopHandler(Handler handler) : outer_(newest_handler.exchange(handler)) {
  struct sigaction action {};
  action.sa_handler = call_newest_handler;
  action.sa_flags = SA_RESTART;  // a replica that goes on does not notice
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    has_set_[i] = handler_of(kStopSignals[i]) == SIG_DFL;
    if (has_set_[i]) ::sigaction(kStopSignals[i], &action, nullptr);
  }
}

StopHandler::~StopHandler() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    const bool is_ours = has_set_[i] && handler_of(kStopSignals[i]) == call_newest_handler;
    if (is_ours) std::signal(kStopSignals[i], SIG_DFL);
  }
  newest_handler = outer_;
}

StopSignals::StopSignals(Word* asked, Handler end) : asked_(asked), pipe_(make_pipe(O_NONBLOCK)) {
  heard.asked = asked;
  heard.end = end;
  heard.process = ::getpid();
  heard.first = 0;
  heard.too_early = 0;
  heard.ending = 0;
  heard.pipe = pipe_.second.get();
  handler_.emplace(note_signal);
}

int StopSignals::signal() const noexcept {
  return heard.ending;
}

void StopSignals::tell_early() const {
  const int signal = heard.too_early.exchange(0);
  if (signal == 0 || heard.ending != 0) return;
  const std::int64_t rest =
      std::max<std::int64_t>(0, heard.first + kPatience.count() - stop_clock());
  leave_progress_line();
  log_warning(str(name_of_stop(signal), ": replicas end at their next step; one that comes ",
                  static_cast<double>((rest + 99) / 100) / 10, " s later ends them at once"));
}

std::string stopped_text(int signal) {
  return str("stopped by ", name_of_stop(signal), "; all replicas have ended");
}

void tell_asked(int signal, bool is_elsewhere) {
  leave_progress_line();
  log_warning(str(name_of_stop(signal), is_elsewhere ? " on another host" : "",
                  ": replicas end at their next step; ",
                  may_end(signal) && !is_elsewhere ? "a second one after 2 s ends them at once"
                                                   : "Ctrl-C twice, 2 s apart, ends them at once"));
}

void leave_progress_line() {
  if (::isatty(STDERR_FILENO) == 1) Output::of(STDERR_FILENO).write("\n");
}

void stop_at_once(int signal) {
  // Progress may stand on the terminal in the middle of a line.
  char message[80] = "\nlockstep: error: stopped by ";
  std::strcat(message, name_of_stop(signal));
  std::strcat(message, "\n");
  const char* const begin = message + (::isatty(STDERR_FILENO) == 1 ? 0 : 1);
  const bool is_read = wait_for({STDERR_FILENO, POLLOUT, 0});
  if (is_read) (void)!::write(STDERR_FILENO, begin, std::strlen(begin));
  ::_exit(status_of_stop(signal));
}

void unblock_stops() noexcept {
  sigset_t stops;
  ::sigemptyset(&stops);
  for (const int signal : kStopSignals) ::sigaddset(&stops, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
}

void be_warned_of_cpu_limit(std::int64_t threads) noexcept {
  constexpr rlim_t kSeconds = 30;  // all threads' time counts
  rlimit limit{};
  if (::getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return;
  if (limit.rlim_cur < limit.rlim_max) return;
  limit.rlim_cur -= std::min(kSeconds * static_cast<rlim_t>(threads), 1 + limit.rlim_max / 10);
  ::setrlimit(RLIMIT_CPU, &limit);
}

void leave_stops_to_launcher(bool asks) {
  for (const int signal : kStopSignals) {
    const Handler now = handler_of(signal);
    if (now != SIG_DFL && now != call_newest_handler) continue;
    const bool is_ignored = signal == SIGTERM ? asks : signal != SIGXCPU;
    std::signal(signal, is_ignored ? SIG_IGN : SIG_DFL);
  }
}

}  // namespace lockstep::launcher
