#include "trainers/bench/testing/child_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

int check(int result, const char* what) {
  if (result < 0) throw Error(std::string(what) + ": " + std::strerror(errno));
  return result;
}

// A file without a name: who writes to it is never blocked, whoever reads is never late.
Descriptor new_file(const char* name) {
  Descriptor file(check(::memfd_create(name, MFD_CLOEXEC), "memfd_create"));
  check(::fcntl(file.get(), F_SETFL, O_APPEND), "fcntl");  // several processes write to it
  return file;
}

std::string contents(const Descriptor& file) {
  std::string text;
  std::array<char, 65536> buffer{};
  ssize_t count = 0;
  while ((count = ::pread(file.get(), buffer.data(), buffer.size(),
                          static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return text;
}

struct ProcessState {
  char letter = 'X';  // as /proc has it: R, S, D, T, Z; X is gone
  pid_t parent = -1;
  unsigned long long start_time = 0;
};

ProcessState state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  // "pid (name) state ppid …": a name may hold anything, so that the last parenthesis counts.
  const std::size_t end = text.rfind(')');
  ProcessState state;
  if (end == std::string::npos) return state;
  std::istringstream rest(text.substr(end + 1));
  rest >> state.letter >> state.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) rest >> skipped;
  rest >> state.start_time;
  return state;
}

// Tests compare what programs write. That must not depend on the machine's BLAS.
std::string without_blas_warning(std::string text) {
  for (const std::string blas : {"OpenBLAS ", "this BLAS ", "the reference BLAS "}) {
    const std::string warning = "lockstep: warning: " + blas;
    for (auto at = text.find(warning); at != std::string::npos; at = text.find(warning)) {
      text.erase(at, text.find('\n', at) + 1 - at);
    }
  }
  return text;
}

}  // namespace

pid_t fork_child(int out, int err, int at_end, const std::function<void()>& body) {
  std::cout.flush();
  std::fflush(nullptr);  // or the child would write what waits there once more
  const pid_t parent = ::getpid();
  const pid_t pid = check(::fork(), "fork");
  if (pid != 0) {
    ::setpgid(pid, pid);  // here too: it must hold before anyone signals the group
    return pid;
  }
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, at_end);
  if (::getppid() != parent) ::_exit(97);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  body();
  ::_exit(97);
}

ChildProgram::ChildProgram(const std::vector<std::string>& command,
                           const std::filesystem::path& folder) {
  std::vector<std::string> copies = command;
  std::vector<char*> arguments;
  for (std::string& argument : copies) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  start([&] {
    if (!folder.empty() && ::chdir(folder.c_str()) != 0) ::_exit(98);
    ::execv(arguments[0], arguments.data());
    std::fprintf(stderr, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
    ::_exit(98);
  });
}

ChildProgram::ChildProgram(const std::function<int()>& body) {
  start([&] {
    int status = 99;
    ::setenv(kForkVariable, "1", 1);
    for (const int caught_by_catch2 : {SIGINT, SIGTERM}) std::signal(caught_by_catch2, SIG_DFL);
    try {
      status = body();
    } catch (const std::exception& error) {
      std::cerr << "the forked function threw: " << error.what() << std::endl;
    }
    std::cout.flush();
    std::fflush(nullptr);
    ::_exit(status);
  });
}

void ChildProgram::start(const std::function<void()>& in_child) {
  check(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl");
  out_ = new_file("stdout");
  err_ = new_file("stderr");
  began_ = Clock::now();
  // Nothing outlives a test that is killed.
  pid_ = fork_child(out_.get(), err_.get(), SIGKILL, in_child);
}

ChildProgram::~ChildProgram() {
  if (running()) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, &wait_status_, 0);
  }
}

std::string ChildProgram::out() const {
  return contents(out_);
}

std::string ChildProgram::err() const {
  return contents(err_);
}

bool ChildProgram::running() {
  if (!reaped_) reaped_ = ::waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  return !reaped_;
}

Ended ChildProgram::wait(std::chrono::milliseconds deadline) {
  if (!eventually([&] { return !running(); }, deadline)) {
    throw std::runtime_error("a child program still runs after " +
                             std::to_string(deadline.count()) + " ms; its stdout:\n" + out() +
                             "\nits stderr:\n" + err());
  }
  Ended result;
  result.by_signal = WIFSIGNALED(wait_status_);
  result.status = result.by_signal ? 128 + WTERMSIG(wait_status_) : WEXITSTATUS(wait_status_);
  result.out = out();
  result.err = without_blas_warning(err());
  result.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  return result;
}

Ended run_program(const std::vector<std::string>& command, const std::filesystem::path& folder) {
  return ChildProgram(command, folder).wait();
}

Ended run_forked(const std::function<int()>& body) {
  return ChildProgram(body).wait();
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  while (!condition()) {
    if (Clock::now() >= end) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

bool ended(pid_t pid) {
  // It may be an orphan that this process has adopted; elsewhere this does nothing.
  ::waitpid(pid, nullptr, WNOHANG);
  const char state = state_of(pid).letter;
  if (state != 'Z') return state == 'X';
  // A process is a zombie once its first thread has ended; what it has open closes with its last.
  std::error_code gone;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", gone);
  return gone || std::distance(begin(threads), end(threads)) <= 1;
}

bool stopped(pid_t pid) {
  return state_of(pid).letter == 'T';
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<std::pair<unsigned long long, pid_t>> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto other = static_cast<pid_t>(std::stol(name));
    const ProcessState state = state_of(other);
    if (state.parent == pid && state.letter != 'Z') found.emplace_back(state.start_time, other);
  }
  std::sort(found.begin(), found.end());
  std::vector<pid_t> children;
  for (const auto& [start_time, child] : found) children.push_back(child);
  return children;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace lockstep::testing
