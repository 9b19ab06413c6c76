#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"
#include "trainers/bench/systems/tasks.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kAtOnce = std::int64_t{1} << 20;
constexpr std::chrono::seconds kPatience{30};

void check(std::int64_t result, const char* what) {
  if (result < 0) throw CommError(str("plain TCP: ", what, ": ", text_of_errno(errno)));
}

sockaddr_in socket_address(const std::string& address, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  check(::inet_pton(AF_INET, address.c_str(), &to.sin_addr) - 1, "inet_pton");
  return to;
}

Descriptor new_socket() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(socket.get(), "socket");
  return socket;
}

// The other host may not listen yet.
Descriptor connect_to(const sockaddr_in& to) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    Descriptor socket = new_socket();
    const int result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (result == 0) return socket;
    if (errno != ECONNREFUSED || std::chrono::steady_clock::now() > deadline) {
      check(result, "connect");
    }
    ::poll(nullptr, 0, 10);
  }
}

class PlainTcp : public ReplicaTask {
 public:
  PlainTcp(const std::vector<std::string>& addresses, std::size_t host, std::uint16_t port)
      : hosts_(static_cast<std::int64_t>(addresses.size())), sent_(kAtOnce), received_(kAtOnce) {
    const Descriptor listening = new_socket();
    const sockaddr_in own = socket_address(addresses.at(host), port);
    check(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), "bind");
    check(::listen(listening.get(), 1), "listen");
    next_ = connect_to(socket_address(addresses[(host + 1) % addresses.size()], port));
    previous_ = Descriptor(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    check(previous_.get(), "accept");
    const int on = 1;
    check(::setsockopt(next_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
  }

  std::string prepare(const std::string& operation, std::int64_t bytes) override {
    bytes_ = (operation == "all_reduce" ? 2 : 1) * (hosts_ - 1) * bytes / hosts_;
    return "";
  }

  void barrier() override {
    for (std::int64_t i = 1; i < hosts_; ++i) exchange(1);
  }

  void call() override { exchange(bytes_); }

 private:
  void exchange(std::int64_t bytes) {
    std::int64_t to_send = bytes;
    std::int64_t to_receive = bytes;
    while (to_send > 0 || to_receive > 0) {
      to_send -= moved(to_send, ::send(next_.get(), sent_.data(), at_most(to_send),
                                       MSG_DONTWAIT | MSG_NOSIGNAL));
      to_receive -= moved(
          to_receive, ::recv(previous_.get(), received_.data(), at_most(to_receive), MSG_DONTWAIT));
      std::array<pollfd, 2> polled{pollfd{to_send > 0 ? next_.get() : -1, POLLOUT, 0},
                                   pollfd{to_receive > 0 ? previous_.get() : -1, POLLIN, 0}};
      if (to_send > 0 || to_receive > 0) check(::poll(polled.data(), polled.size(), -1), "poll");
    }
  }

  static std::size_t at_most(std::int64_t bytes) {
    return static_cast<std::size_t>(std::min(bytes, kAtOnce));
  }

  // How much a call has moved of what it should.
  static std::int64_t moved(std::int64_t wanted, ssize_t result) {
    if (wanted == 0 || (result < 0 && errno == EAGAIN)) return 0;
    check(result, "send or receive");
    if (result == 0) throw CommError("plain TCP: the other host has closed its connection");
    return result;
  }

  std::int64_t hosts_;
  std::int64_t bytes_ = 0;
  Descriptor next_;
  Descriptor previous_;
  std::vector<char> sent_;
  std::vector<char> received_;
};

}  // namespace

std::unique_ptr<ReplicaTask> make_plain_tcp(const std::vector<std::string>& addresses,
                                            std::size_t host, std::uint16_t port) {
  return std::make_unique<PlainTcp>(addresses, host, port);
}

}  // namespace lockstep::bench
