#include "tests/support/free_port.h"

#include <stdexcept>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "framework/base/descriptor.h"

namespace lockstep::testing {

std::uint16_t free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), any, size) != 0 || ::getsockname(socket.get(), any, &size) != 0) {
    throw std::runtime_error("there is no free port");
  }
  return ntohs(address.sin_port);
}

}  // namespace lockstep::testing
