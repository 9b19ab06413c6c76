#include "trainers/bench/progress_line.h"

#include <iostream>

#include <unistd.h>

namespace lockstep::bench {

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(const std::string& text) {
  if (terminal_) std::cerr << "\r\033[K" << text << std::flush;
}

void ProgressLine::clear() {
  if (terminal_) std::cerr << "\r\033[K" << std::flush;
}

}  // namespace lockstep::bench
