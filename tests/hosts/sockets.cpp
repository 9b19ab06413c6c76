#include "tests/hosts/sockets.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace lockstep::testing {
namespace {

void check(int result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

sockaddr_in address_of(const std::string& address, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  check(::inet_pton(AF_INET, address.c_str(), &to.sin_addr) - 1, "inet_pton");
  return to;
}

Descriptor new_socket(int kind) {
  Descriptor socket(::socket(AF_INET, kind | SOCK_CLOEXEC, 0));
  check(socket.get(), "socket");
  return socket;
}

}  // namespace

Descriptor new_tcp_socket() {
  Descriptor socket = new_socket(SOCK_STREAM);
  const int on = 1;
  check(::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
  check(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
  return socket;
}

Descriptor new_udp_socket() {
  return new_socket(SOCK_DGRAM);
}

void bind_to(const Descriptor& socket, std::uint16_t port) {
  const sockaddr_in at = address_of("0.0.0.0", port);
  check(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), "bind");
}

void listen_at(const Descriptor& socket, std::uint16_t port) {
  bind_to(socket, port);
  check(::listen(socket.get(), 64), "listen");
}

Descriptor accept_one(const Descriptor& listening) {
  Descriptor socket(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  check(socket.get(), "accept");
  return socket;
}

bool connects_to(const Descriptor& socket, const std::string& address, std::uint16_t port,
                 std::chrono::milliseconds timeout) {
  const sockaddr_in to = address_of(address, port);
  const int flags = ::fcntl(socket.get(), F_GETFL);
  check(::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK), "fcntl");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    if (errno != EINPROGRESS) return false;
    pollfd polled{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&polled, 1, static_cast<int>(timeout.count())) != 1) return false;
    int error = 0;
    socklen_t size = sizeof error;
    check(::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size), "getsockopt");
    if (error != 0) return false;
  }
  check(::fcntl(socket.get(), F_SETFL, flags), "fcntl");
  return true;
}

void send_all(const Descriptor& socket, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count =
        ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    check(static_cast<int>(count), "send");
    sent += static_cast<std::size_t>(count);
  }
}

std::string receive(const Descriptor& socket, std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t received = 0;
  while (received < count) {
    const ssize_t more = ::recv(socket.get(), bytes.data() + received, count - received, 0);
    check(static_cast<int>(more), "recv");
    if (more == 0) break;
    received += static_cast<std::size_t>(more);
  }
  bytes.resize(received);
  return bytes;
}

}  // namespace lockstep::testing
