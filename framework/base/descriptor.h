#pragma once

#include <utility>

#include <unistd.h>

namespace lockstep {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool open() const noexcept { return fd_ >= 0; }
  /// Hands the descriptor to the caller, who closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void close() noexcept {
    if (open()) ::close(release());
  }

 private:
  int fd_;
};

}  // namespace lockstep
