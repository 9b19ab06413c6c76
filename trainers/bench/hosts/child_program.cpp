#include "trainers/bench/hosts/child_program.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <stdexcept>

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

// A file without a name. As no pipe does, it takes all that is written, and keeps it to be read.
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

void become(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::dprintf(STDERR_FILENO, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
  ::_exit(kNotRun);
}

ChildProgram::ChildProgram(const std::vector<std::string>& command,
                           const std::filesystem::path& folder) {
  start([&] {
    if (!folder.empty() && ::chdir(folder.c_str()) != 0) ::_exit(98);
    become(command);
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

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  while (!condition()) {
    if (Clock::now() >= end) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

}  // namespace lockstep::testing
