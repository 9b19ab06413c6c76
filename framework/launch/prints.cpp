#include "framework/launch/prints.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <stdio_ext.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framework/base/poll_set.h"
#include "framework/base/text.h"

namespace lockstep::launcher {

LinesGoOut::LinesGoOut() : was_by_line_(::__flbf(stdout) != 0) {
  const bool is_unbuffered = ::__fbufsize(stdout) == 1;
  if (!is_unbuffered) std::setvbuf(stdout, nullptr, _IOLBF, 0);
}

LinesGoOut::~LinesGoOut() {
  if (!was_by_line_ && ::__flbf(stdout) != 0) std::setvbuf(stdout, nullptr, _IOFBF, 0);
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

}  // namespace lockstep::launcher
