#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <netdb.h>
#include <sys/socket.h>

namespace lockstep::comm {

/// A host by its name or address, and a port.
struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;

  /// Reads "node0:29500" or "[::1]:29500". Throws ValueError, naming text and rule, for others.
  [[nodiscard]] static HostAndPort parse(std::string_view text);
  [[nodiscard]] std::string text() const;
};

/// True when `host`, a name or an address, is one by which a host reaches itself alone.
[[nodiscard]] bool is_loopback(const std::string& host);

struct FreeAddresses {
  void operator()(addrinfo* first) const { ::freeaddrinfo(first); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;
/// Returns the addresses of a host, looked up with getaddrinfo()'s `flags`, and its error or 0.
[[nodiscard]] std::pair<Addresses, int> addresses_of(const HostAndPort& at, int flags);
/// Returns that error, which is not 0, in words.
[[nodiscard]] std::string text_of_lookup(int error);

/// Returns an address in numbers, as "10.0.0.1" or "10.0.0.1:29500".
[[nodiscard]] std::string address_text(const sockaddr& address, socklen_t length, bool with_port);

}  // namespace lockstep::comm
