#include "framework/launch/worker_process.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/poll_set.h"
#include "framework/base/socket.h"
#include "framework/base/text.h"
#include "framework/launch/stop_signals.h"
#include "framework/maps/machine.h"

namespace lockstep::launcher {
namespace {

// Tells a process that was started anew its report's socket, in which its WorkerPlace waits.
constexpr const char* kPlaceVariable = "LOCKSTEP_WORKER";

// A socket that nobody reads yet has room for this.
constexpr std::size_t kLongestMessage = std::size_t{16} << 10;

std::array<int, 3> descriptors_of(const WorkerPlace& place) {
  return {place.store, place.report, place.memory};
}

// Ending threads take a moment: LibTorch's math may have left some in a map's threads.
bool has_one_thread() {
  for (int looks = 20;; --looks) {
    std::error_code error;
    const std::filesystem::directory_iterator threads("/proc/self/task", error);
    require<CommError>(
        !error, "launch: /proc is needed and cannot be read: ", text_of_errno(error.value()));
    if (std::distance(begin(threads), end(threads)) == 1) return true;
    if (looks == 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Prepares the child before any part of the program runs.
void become_worker(pid_t launcher, const StopsHeld& held, bool is_asked, int out, int err) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(3);  // the launcher died before the line above
  leave_stops_to_launcher(is_asked);
  held.release();
  if (out >= 0) {
    ::dup2(out, STDOUT_FILENO);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(nothing, STDIN_FILENO);
  }
  ::dup2(err, STDERR_FILENO);
}

[[noreturn]] void start_anew(char* const* arguments, const WorkerPlace& place) {
  // Closes connections of earlier maps: Gloo does not mark its sockets.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const int inherited_end : descriptors_of(place)) ::fcntl(inherited_end, F_SETFD, 0);
  ::execv("/proc/self/exe", arguments);
  ::_exit(127);
}

}  // namespace

std::pair<Descriptor, Descriptor> make_pipe(int flags) {
  std::array<int, 2> ends{};
  require_done<CommError>(::pipe2(ends.data(), O_CLOEXEC | flags) == 0,
                          "launch: cannot make a pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

const std::optional<WorkerPlace>& inherited_place() {
  static const auto inherited = []() -> std::optional<WorkerPlace> {
    const char* const text = std::getenv(kPlaceVariable);
    if (text == nullptr) return std::nullopt;
    ::unsetenv(kPlaceVariable);  // programs that the worker starts are no workers
    const std::string bytes = receive_message(std::atoi(text), MSG_PEEK | MSG_DONTWAIT);
    require(!bytes.empty(), kPlaceVariable, "='", text, "' is not set by a launcher");
    const auto place = decode<WorkerPlace>(bytes, "a worker's place");
    for (const int end : descriptors_of(place)) ::fcntl(end, F_SETFD, FD_CLOEXEC);
    return place;
  }();
  return inherited;
}

StopsHeld::StopsHeld() noexcept {
  sigset_t stops;
  ::sigemptyset(&stops);
  for (const int signal : kStopSignals) ::sigaddset(&stops, signal);
  ::pthread_sigmask(SIG_BLOCK, &stops, &before_);
}

WorkerProcess start_worker(WorkerPlace place, std::vector<WorkerProcess>& earlier,
                           const StopsHeld& held, bool is_asked,
                           const std::function<void(const WorkerPlace&)>& run) {
  const bool is_first = earlier.empty();
  auto [our_store, their_store] = make_socket_pair();
  auto [report_in, report_out] = make_socket_pair();
  auto [err_in, err_out] = make_pipe();
  std::pair<Descriptor, Descriptor> out;
  if (place.index != 0) out = make_pipe();
  place.store = their_store.get();
  place.report = report_out.get();

  // Everything that allocates comes before the fork of a process that may have threads.
  const bool safe_to_fork = has_one_thread();
  std::vector<std::string> arguments = maps::command_line();
  std::vector<char*> argument_pointers;
  for (std::string& argument : arguments) argument_pointers.push_back(argument.data());
  argument_pointers.push_back(nullptr);
  if (!safe_to_fork) {
    send_message(report_in.get(), encode(place));
    ::setenv(kPlaceVariable, std::to_string(place.report).c_str(), 1);
  }
  std::cout.flush();
  std::fflush(nullptr);  // or the child would write buffered text once more
  if (!safe_to_fork && is_first) {
    log_info(
        "this program has several threads and can't be forked: its workers are the program started "
        "again, up to this call of launch()");
  }

  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    become_worker(launcher, held, is_asked, out.second.get(), err_out.get());
    if (!safe_to_fork) start_anew(argument_pointers.data(), place);
    earlier.clear();
    for (Descriptor* end : {&our_store, &report_in, &err_in, &err_out, &out.first, &out.second}) {
      end->close();
    }
    run(place);
    ::_exit(1);  // run does not return
  }
  ::unsetenv(kPlaceVariable);
  if (pid < 0) {
    const int reason = errno;
    throw CommError(str("launch: cannot start worker ", place.index, ": ", text_of_errno(reason),
                        reason == EAGAIN ? thread_limit_text() : ""));
  }
  return {place.index,
          place.plan.layout.replicas_of_worker(place.index),
          pid,
          std::move(our_store),
          std::move(report_in),
          std::move(out.first),
          std::move(err_in)};
}

ChildrenToWaitFor::ChildrenToWaitFor() noexcept {
  ::sigaction(SIGCHLD, nullptr, &own_);
  struct sigaction waiting = own_;
  if (own_.sa_handler == SIG_IGN) waiting.sa_handler = SIG_DFL;
  waiting.sa_flags &= ~SA_NOCLDWAIT;
  ::sigaction(SIGCHLD, &waiting, nullptr);
}

void send_report(int socket, Report report) noexcept {
  report.message = shortened(report.message, kLongestMessage);
  send_message(socket, encode(report));
}

void read_reports(Descriptor& socket, std::optional<Report>& counts) {
  while (wait_for({socket.get(), POLLIN, 0})) {
    const std::string bytes = receive_message(socket.get());
    if (bytes.empty()) return socket.close();
    auto report = decode<Report>(bytes, "a worker's report");
    if (!counts || counts->done()) counts = std::move(report);
  }
}

}  // namespace lockstep::launcher
