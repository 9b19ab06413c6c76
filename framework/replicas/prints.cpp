#include "framework/replicas/prints.h"

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <stdio_ext.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framework/axes/environment.h"
#include "framework/base/logging.h"
#include "framework/base/mutex.h"
#include "framework/base/poll_set.h"
#include "framework/base/text.h"
#include "framework/replicas/replica_threads.h"

namespace lockstep::replicas {
namespace {

// The job's replica that this thread runs, also in maps that it calls; 0 for threads of nobody's.
std::int64_t printing_replica() {
  const Environment* const here = current_environment();
  if (here == nullptr) return 0;
  const AxisLevel& job = here->levels().front();
  if (job.map_call == kJobCall) return job.rank;
  return job.callers.empty() ? 0 : job.callers[static_cast<std::size_t>(job.rank)];
}

// What a thread has printed of a line. It goes out at the latest when the thread ends.
struct OpenLine {
  std::string text;
  ~OpenLine() { const LastLineEnds its; }
};

// Stands in std::cout's place. Each thread's text waits here for the end of its line. It has no
// buffer of its own to share: every access of std::cout calls one of these functions.
class Lines final : public std::streambuf {
 public:
  void begin(Prints prints, std::streambuf* target) {
    const MutexLock lock(mutex_);
    prints_ = prints;
    target_ = target;
    told_ = false;
  }

  // Passes on what waits of this thread, of a line that is not the first replica's with its end.
  bool finish() {
    if (waiting().empty()) return true;
    if (printing_replica() != 0) waiting() += '\n';
    return pass_on(waiting().size());
  }

 protected:
  int_type overflow(int_type letter) override {
    if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
    const char one = traits_type::to_char_type(letter);
    return xsputn(&one, 1) == 1 ? letter : traits_type::eof();
  }

  std::streamsize xsputn(const char* text, std::streamsize count) override {
    const std::size_t before = waiting().size();
    waiting().append(text, static_cast<std::size_t>(count));
    const std::size_t end = waiting().rfind('\n');
    const bool has_line = end != std::string::npos && end >= before;
    return !has_line || pass_on(end + 1) ? count : 0;
  }

  // What the first replica flushes is seen at once, and so are threads of the program's own.
  // Others' lines come whole.
  int sync() override { return printing_replica() != 0 || pass_on(waiting().size()) ? 0 : -1; }

 private:
  static std::string& waiting() {
    thread_local OpenLine line;
    return line.text;
  }

  bool pass_on(std::size_t count) {
    const std::int64_t replica = printing_replica();
    const std::string text = waiting().substr(0, count);
    waiting().erase(0, count);
    const MutexLock lock(mutex_);
    if (replica == 0) return write(text);
    if (prints_ == Prints::first) {
      if (!std::exchange(told_, true)) tell_left_out(str("replica ", replica));
      return true;
    }
    std::string lines;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at) + 1;
      lines += prefix_of_replica(replica) + text.substr(at, end - at);
      at = end;
    }
    return write(lines);
  }

  bool write(std::string_view text) LOCKSTEP_REQUIRES(mutex_) {
    const auto size = static_cast<std::streamsize>(text.size());
    return target_->sputn(text.data(), size) == size && target_->pubsync() == 0;
  }

  Mutex mutex_;
  Prints prints_ LOCKSTEP_GUARDED_BY(mutex_) = Prints::first;
  std::streambuf* target_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
  bool told_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // that lines are left out
};

// Never destroyed: a thread that still runs when the program ends may print.
Lines& lines() {
  static Lines& only = *new Lines;
  return only;
}

}  // namespace

ReplicaPrints::ReplicaPrints(Prints prints, bool are_several)
    : was_by_line_(::__flbf(stdout) != 0) {
  const bool is_unbuffered = ::__fbufsize(stdout) == 1;
  if (!is_unbuffered) std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (!are_several) return;
  lines().begin(prints, std::cout.rdbuf());
  cout_before_ = std::cout.rdbuf(&lines());
}

ReplicaPrints::~ReplicaPrints() {
  // What the program has put in its place stays.
  if (cout_before_ != nullptr && std::cout.rdbuf() == &lines()) std::cout.rdbuf(cout_before_);
  if (!was_by_line_ && ::__flbf(stdout) != 0) std::setvbuf(stdout, nullptr, _IOFBF, 0);
}

LastLineEnds::~LastLineEnds() {
  if (std::cout.rdbuf() == &lines()) lines().finish();
}

bool wait_for_reader(std::span<const pid_t> processes) {
  namespace fs = std::filesystem;
  if (wait_for({STDOUT_FILENO, POLLOUT, 0})) return false;
  for (const pid_t process : processes) {
    std::error_code gone;
    fs::directory_iterator task(str("/proc/", process, "/task"), gone);
    for (; !gone && task != fs::directory_iterator(); task.increment(gone)) {
      std::string call;  // "1 0x1 …" is write() to stdout; "" where the system does not tell
      std::getline(std::ifstream(task->path() / "syscall"), call);
      const auto is = [&](int number) { return call.starts_with(str(number, " 0x1 ")); };
      if (call.empty() || is(SYS_write) || is(SYS_writev)) return true;
    }
  }
  return false;
}

std::string prefix_of_replica(std::int64_t replica) {
  return str("[replica ", replica, "] ");
}

void tell_left_out(const std::string& replica) {
  log_info(replica +
           " prints, too, but stdout has what replica 0 prints alone; all are shown with "
           "LaunchOptions::prints, in a config parallel.prints: all");
}

}  // namespace lockstep::replicas
