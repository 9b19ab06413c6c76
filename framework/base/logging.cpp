#include "framework/base/logging.h"

#include <atomic>

#include <unistd.h>

#include "framework/base/output.h"
#include "framework/base/terminal.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

std::atomic<bool> is_quiet{false};

void say(const char* kind, std::string_view message) {
  Output::of(STDERR_FILENO)
      .write(str(line_start(STDERR_FILENO), "lockstep: ", kind, printable(message), "\n"));
}

}  // namespace

void log_info(std::string_view message) {
  if (!is_quiet) say("", message);
}
void log_warning(std::string_view message) {
  say("warning: ", message);
}
void log_error(std::string_view message) {
  say("error: ", message);
}

void set_quiet(bool quiet) {
  is_quiet = quiet;
}

}  // namespace lockstep
