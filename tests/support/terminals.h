#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <regex>
#include <stdexcept>
#include <string>

#include <linux/magic.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "framework/base/descriptor.h"

namespace lockstep::testing {

/// Whether terminals can be made here. A root without /dev/pts has none, and so nothing that a
/// program could take for one.
[[nodiscard]] inline bool has_terminals() {
  struct statfs mounted {};
  return ::statfs("/dev/pts", &mounted) == 0 && mounted.f_type == DEVPTS_SUPER_MAGIC;
}

/// A terminal that a program could be started in, seen from the other side.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    const winsize size = window(columns);
    int here = -1;
    int there = -1;
    if (::openpty(&here, &there, nullptr, nullptr, &size) != 0) {
      throw std::runtime_error("openpty failed");
    }
    here_ = Descriptor(here);
    stream_.reset(::fdopen(there, "w"));
  }

  /// What the program writes to.
  [[nodiscard]] std::FILE* stream() const { return stream_.get(); }

  void resize(unsigned short columns) const {
    const winsize size = window(columns);
    if (::ioctl(here_.get(), TIOCSWINSZ, &size) != 0) throw std::runtime_error("TIOCSWINSZ failed");
  }

  /// Whether what is written from now on matches a regular expression before a deadline.
  [[nodiscard]] bool shows(const std::string& wanted) const {
    const std::regex pattern(wanted);
    std::string all;
    pollfd ready{.fd = here_.get(), .events = POLLIN, .revents = 0};
    while (!std::regex_search(all, pattern)) {
      if (::poll(&ready, 1, 60'000) != 1 || !read_more(all)) return false;
    }
    return true;
  }
  /// Hangs up and returns all that was written.
  [[nodiscard]] std::string text() {
    stream_.reset();
    std::string all;
    while (read_more(all)) continue;  // EIO: the other side is closed and everything read
    return all;
  }

 private:
  static winsize window(unsigned short columns) {
    return {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  }
  bool read_more(std::string& all) const {
    std::array<char, 4096> buffer{};
    const ssize_t size = ::read(here_.get(), buffer.data(), buffer.size());
    if (size > 0) all.append(buffer.data(), static_cast<std::size_t>(size));
    return size > 0;
  }

  Descriptor here_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream_{nullptr, std::fclose};
};

}  // namespace lockstep::testing
