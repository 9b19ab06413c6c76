#pragma once

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <poll.h>

namespace lockstep {

/// Returns a time as poll(2) takes it; max() has no end.
[[nodiscard]] inline int poll_time(std::chrono::milliseconds most) noexcept {
  if (most == std::chrono::milliseconds::max()) return -1;
  return static_cast<int>(std::clamp<std::int64_t>(most.count(), 0, INT_MAX));
}

/// The descriptors that one turn of an event loop waits for, each with a handler of its events. For
/// one thread.
class PollSet {
 public:
  using Handler = std::function<void(short events)>;

  /// Without a handler an event only ends the wait. A negative descriptor is left out.
  void add(const pollfd& polled, Handler handler = {}) {
    if (polled.fd < 0) return;
    polled_.push_back(polled);
    handlers_.push_back(std::move(handler));
  }
  void add(int descriptor, Handler handler = {}) {
    add({descriptor, POLLIN, 0}, std::move(handler));
  }
  [[nodiscard]] bool is_empty() const noexcept { return polled_.empty(); }
  void clear() noexcept {
    polled_.clear();
    handlers_.clear();
  }

  /// Waits until an event has come, for `most` at most (max(): without end), and calls the handlers
  /// of descriptors with events, in the order in which they were added. A signal may end the wait
  /// early. `woken` is called before the handlers, also if no event has come.
  void wait(std::chrono::milliseconds most, const std::function<void()>& woken = {}) {
    const int come = ::poll(polled_.data(), polled_.size(), poll_time(most));
    if (woken) woken();
    if (come <= 0) return;
    for (std::size_t i = 0; i < polled_.size(); ++i) {
      if (polled_[i].revents != 0 && handlers_[i]) handlers_[i](polled_[i].revents);
    }
  }

 private:
  std::vector<pollfd> polled_;
  std::vector<Handler> handlers_;
};

/// Waits for an event of one descriptor, for `most` at most. Returns true if one has come.
inline bool wait_for(pollfd polled, std::chrono::milliseconds most = {}) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + most;
  for (auto left = most;; left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now())) {
    if (::poll(&polled, 1, poll_time(left)) > 0) return true;
    if (left.count() <= 0) return false;
  }
}

}  // namespace lockstep
