#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "framework/base/descriptor.h"

namespace lockstep::testing {

/// Sockets over IPv4. What goes wrong is thrown as a std::runtime_error.
[[nodiscard]] Descriptor new_tcp_socket();
[[nodiscard]] Descriptor new_udp_socket();
/// Binds to any address of the host, and listens with TCP.
void bind_to(const Descriptor& socket, std::uint16_t port);
void listen_at(const Descriptor& socket, std::uint16_t port);
[[nodiscard]] Descriptor accept_one(const Descriptor& listening);
/// Whether it has connected before `timeout` is over.
[[nodiscard]] bool connects_to(const Descriptor& socket, const std::string& address,
                               std::uint16_t port,
                               std::chrono::milliseconds timeout = std::chrono::seconds(10));
void send_all(const Descriptor& socket, const std::string& bytes);
/// The next `count` bytes, or those until the other end has closed.
[[nodiscard]] std::string receive(const Descriptor& socket, std::size_t count);

}  // namespace lockstep::testing
