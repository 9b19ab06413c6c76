#include "trainers/bench/hosts/frame_relay.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <stdexcept>

#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

// With the 10 bytes of a virtio_net_hdr, which says how the kernel would cut a packet up: it hands
// on 64 KiB as one.
constexpr std::size_t kLongestFrame = 10 + ETH_HLEN + 65536;
constexpr std::size_t kMostWaiting = 20000;  // as a router, it drops what comes when it is full

struct WaitingFrame {
  Clock::time_point due;
  int to;
  std::string bytes;
};

// An empty one: there is none now.
std::string read_frame(int from) {
  static std::array<char, kLongestFrame> buffer;
  const ssize_t count = ::read(from, buffer.data(), buffer.size());
  return count > 0 ? std::string(buffer.data(), static_cast<std::size_t>(count)) : std::string();
}

// A device that is down loses what it is given.
void write_frame(int to, const std::string& frame) {
  [[maybe_unused]] const ssize_t lost = ::write(to, frame.data(), frame.size());
}

void wait_until(std::vector<pollfd>& polled, const std::deque<WaitingFrame>& waiting) {
  timespec left{};
  if (!waiting.empty()) {
    const auto ns = std::chrono::nanoseconds(waiting.front().due - Clock::now()).count();
    if (ns > 0) {
      left.tv_sec = ns / 1'000'000'000;
      left.tv_nsec = ns % 1'000'000'000;
    }
  }
  ::ppoll(polled.data(), polled.size(), waiting.empty() ? nullptr : &left, nullptr);
}

}  // namespace

Descriptor open_tap(const std::string& name) {
  Descriptor device(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (!device.open() || ::ioctl(device.get(), TUNSETIFF, &request) != 0 ||
      ::ioctl(device.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) {
    throw std::runtime_error("can't make the device " + name +
                             " by /dev/net/tun: " + std::strerror(errno));
  }
  return device;
}

void relay_frames(const std::vector<Cable>& cables, std::chrono::nanoseconds delay) {
  std::vector<pollfd> polled;
  for (const Cable& cable : cables) {
    polled.push_back({.fd = cable.host.get(), .events = POLLIN, .revents = 0});
    polled.push_back({.fd = cable.port.get(), .events = POLLIN, .revents = 0});
  }
  std::deque<WaitingFrame> waiting;
  while (true) {
    wait_until(polled, waiting);
    for (; !waiting.empty() && waiting.front().due <= Clock::now(); waiting.pop_front()) {
      write_frame(waiting.front().to, waiting.front().bytes);
    }
    for (const Cable& cable : cables) {
      for (std::string frame; !(frame = read_frame(cable.host.get())).empty();) {
        if (waiting.size() == kMostWaiting) continue;
        waiting.push_back({Clock::now() + delay, cable.port.get(), std::move(frame)});
      }
      for (std::string frame; !(frame = read_frame(cable.port.get())).empty();) {
        write_frame(cable.host.get(), frame);
      }
    }
  }
}

}  // namespace lockstep::testing
