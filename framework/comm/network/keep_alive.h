#pragma once

#include <algorithm>
#include <cstdint>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace lockstep::comm {

/// Lets the system ask the other end of a silent connection once a second, and close the connection
/// when `probes` (1 to 120) of these have no answer: the other host has gone.
inline void keep_alive(int socket, std::int64_t probes) noexcept {
  const int on = 1;
  const auto most = static_cast<int>(std::clamp<std::int64_t>(probes, 1, 120));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
}

}  // namespace lockstep::comm
