#include "framework/comm/network/host_and_port.h"

#include <array>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"

namespace lockstep::comm {

HostAndPort HostAndPort::parse(std::string_view text) {
  const auto refuse = [&] {
    throw ValueError(
        str("'", cut(std::string(text)), "' is no HOST:PORT, such as node0:29500 or [::1]:29500"));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse();
  std::string_view host = text.substr(0, colon);
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  const bool is_bracketed = host.starts_with('[') && host.ends_with(']');
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  const bool is_host = is_bracketed || host.find(':') == std::string_view::npos;
  if (host.empty() || !is_host || !port) refuse();
  return {std::string(host), *port};
}

std::string HostAndPort::text() const {
  const bool is_bracketed = host.find(':') != std::string::npos;
  return is_bracketed ? str("[", host, "]:", port) : str(host, ":", port);
}

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost" || host == "localhost4" ||
         host == "localhost6" || host.starts_with("localhost.") || host.ends_with(".localhost") ||
         host == "ip6-localhost" || host == "ip6-loopback";
}

std::pair<Addresses, int> addresses_of(const HostAndPort& at, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const int error = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &first);
  return {Addresses(first), error};
}

std::string text_of_lookup(int error) {
  const ClassicLocale classic;
  return ::gai_strerror(error);
}

std::string address_text(const sockaddr& address, socklen_t length, bool with_port) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(&address, length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  // A listener on all addresses sees those of IPv4 as if of IPv6, which other hosts may not have.
  std::string_view numeric = host.data();
  constexpr std::string_view kMapped = "::ffff:";
  if (numeric.starts_with(kMapped) && numeric.find('.') != std::string_view::npos) {
    numeric.remove_prefix(kMapped.size());
  }
  if (!with_port) return std::string(numeric);
  return HostAndPort{std::string(numeric), static_cast<std::uint16_t>(std::stoi(port.data()))}
      .text();
}

}  // namespace lockstep::comm
