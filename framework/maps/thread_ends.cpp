#include "framework/maps/thread_ends.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include <signal.h>
#include <unistd.h>

#include "framework/base/process.h"

namespace lockstep::maps {
namespace {

// The size of a handler's stack.
constexpr std::size_t kStack = std::size_t{64} << 10;

struct OwnReplica {
  const char* name = nullptr;
  std::uint64_t process = 0;
};
thread_local OwnReplica own_replica;

bool is_replica() {
  return own_replica.name != nullptr && own_replica.process == process_generation();
}

// A line of text, made without calls that a signal handler must not make.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const std::size_t count = std::min(text.size(), text_.size() - size_);
    std::memcpy(text_.data() + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  Line& operator<<(std::int64_t number) {
    std::array<char, 20> digits{};
    const char* const end = std::to_chars(digits.begin(), digits.end(), number).ptr;
    return *this << std::string_view(digits.begin(), end);
  }
  void write() const { (void)!::write(STDERR_FILENO, text_.data(), size_); }

 private:
  std::array<char, 512> text_{};
  std::size_t size_ = 0;
};

// Writes the last line of this thread's replica.
template <typename... Parts>
void say(const Parts&... parts) {
  Line line;
  ((line << "lockstep: error: " << own_replica.name) << ... << parts).write();
}

void on_crash(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  if (is_replica()) say(" was killed by signal ", signal, " (", ::sigdescr_np(signal), ")\n");
  std::signal(signal, SIG_DFL);
  errno = saved;
  // A fault repeats by itself where it happened; a signal that was sent must be sent once more.
  if (info->si_code <= 0) ::raise(signal);
}

void on_exit_called(int status, void*) {
  if (!is_replica()) return;
  std::cout.flush();
  std::fflush(stdout);
  say(" called exit(", status & 0xff, ") before its function returned\n");
  ::_exit(3);
}

void handle_ends() {
  static const bool done = [] {
    struct sigaction action {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      struct sigaction old {};
      ::sigaction(crash, nullptr, &old);
      const bool is_free = (old.sa_flags & SA_SIGINFO) == 0 && old.sa_handler == SIG_DFL;
      if (is_free) ::sigaction(crash, &action, nullptr);
    }
    return ::on_exit(on_exit_called, nullptr) == 0;
  }();
  (void)done;
}

// The stack on which this thread's handlers run: a stack that has overflowed has no room for them.
class HandlerStack {
 public:
  HandlerStack() {
    stack_t now{};
    ::sigaltstack(nullptr, &now);
    if ((now.ss_flags & SS_DISABLE) == 0) return;  // the thread has one
    memory_.reset(new (std::nothrow) char[kStack]);
    stack_t own{};
    own.ss_sp = memory_.get();
    own.ss_size = kStack;
    if (memory_) ::sigaltstack(&own, nullptr);
  }
  ~HandlerStack() {
    stack_t no_stack{};
    no_stack.ss_flags = SS_DISABLE;
    if (memory_) ::sigaltstack(&no_stack, nullptr);
  }

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace

ThreadEnds::ThreadEnds(std::string replica) : replica_(std::move(replica)) {
  handle_ends();
  thread_local const HandlerStack stack;
  own_replica = {replica_.c_str(), process_generation()};
}

ThreadEnds::~ThreadEnds() {
  own_replica = {};
}

}  // namespace lockstep::maps
