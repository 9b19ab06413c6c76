#pragma once

#include <cstdint>
#include <random>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"

namespace lockstep::testing {

/// A TCP port of the loopback at which nobody listens.
[[nodiscard]] inline std::uint16_t free_port() {
  // Below the ports that the system picks by itself: it could give one of those to another program
  // before whoever asks listens there.
  static std::mt19937 draw{std::random_device{}()};
  std::uniform_int_distribution<std::uint16_t> ports(20000, 32000);
  for (int tries = 0; tries < 100; ++tries) {
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const std::uint16_t port = ports(draw);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      return port;
    }
  }
  throw Error("there is no free port at the loopback");
}

}  // namespace lockstep::testing
