#include "trainers/bench/workplace.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/base/waited.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kLookAround = 100;  // milliseconds

// Processes whose parent is this one.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    // "pid (name) state ppid …": a name may hold anything, so that the last parenthesis counts.
    const std::size_t end = text.rfind(')');
    if (end == std::string::npos || end + 4 > text.size()) continue;
    if (std::strtol(text.c_str() + end + 4, nullptr, 10) == ::getpid()) {
      found.push_back(static_cast<pid_t>(std::stol(name)));
    }
  }
  return found;
}

// Those of a killed process become this one's, and are next.
void end_children() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < deadline) {
    for (const pid_t child : children()) ::kill(child, SIGKILL);
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) return;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace

Stopped::Stopped(int signal)
    : Error(signal == SIGINT ? "stopped by Ctrl-C" : "stopped by SIGTERM"), signal_(signal) {}

Workplace::Workplace() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::string name = (fs::temp_directory_path() / "lockstep-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(str("cannot make the temporary folder ", name, ": ", std::strerror(errno)));
  }
  folder_ = name;
}

Workplace::~Workplace() {
  end_children();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void Workplace::check_signals() const {
  if (signals_.signal() != 0) throw Stopped(signals_.signal());
}

int Workplace::wait_for(std::vector<pollfd>& polled, std::chrono::milliseconds patience) const {
  polled.push_back({signals_.descriptor(), POLLIN, 0});
  int count = 0;
  for (Waited waited; count == 0 && waited.look() < patience;) {
    count = ::poll(polled.data(), polled.size(), kLookAround);
    check_signals();
    if (count < 0 && errno == EINTR) count = 0;
  }
  polled.pop_back();
  return count;
}

Read Workplace::read_some(int descriptor, std::string& text,
                          std::chrono::milliseconds patience) const {
  std::vector<pollfd> polled{{descriptor, POLLIN, 0}};
  if (wait_for(polled, patience) == 0) return Read::nothing;
  std::array<char, 4096> buffer{};
  const ssize_t size = ::read(descriptor, buffer.data(), buffer.size());
  if (size > 0) text.append(buffer.data(), static_cast<std::size_t>(size));
  return size > 0 || (size < 0 && errno == EINTR) ? Read::some : Read::end;
}

}  // namespace lockstep::bench
