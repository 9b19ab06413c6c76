#pragma once

#include <iostream>
#include <string>

#include <unistd.h>

#include "framework/base/non_copyable.h"

namespace lockstep::bench {

/// A line on stderr that shows what bench is doing. Nothing if stderr is no terminal.
class ProgressLine : private NonCopyable {
 public:
  ~ProgressLine() { show(""); }

  /// Shows `text` in place of what was there.
  void show(const std::string& text) const {
    if (terminal_) std::cerr << "\r\033[K" << text << std::flush;
  }
  /// Prints a result in its place.
  void print(const std::string& text) const {
    show("");
    std::cout << text << std::flush;
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
};

}  // namespace lockstep::bench
