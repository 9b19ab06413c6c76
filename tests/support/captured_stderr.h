#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

#include <unistd.h>

#include "framework/base/non_copyable.h"

namespace lockstep::testing {

/// Takes what this process writes to stderr while it is there, from whatever thread.
class CapturedStderr : private NonCopyable {
 public:
  CapturedStderr() {
    std::fflush(stderr);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~CapturedStderr() {
    std::fflush(stderr);
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    std::fclose(file_);
  }

  [[nodiscard]] std::string text() const {
    std::fflush(stderr);
    std::string text(static_cast<std::size_t>(::lseek(::fileno(file_), 0, SEEK_END)), '\0');
    text.resize(static_cast<std::size_t>(
        std::max<ssize_t>(::pread(::fileno(file_), text.data(), text.size(), 0), 0)));
    return text;
  }

 private:
  int before_ = ::dup(STDERR_FILENO);
  std::FILE* file_ = std::tmpfile();
};

}  // namespace lockstep::testing
