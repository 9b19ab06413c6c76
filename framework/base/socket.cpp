#include "framework/base/socket.h"

#include <cerrno>

#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"

namespace lockstep {

std::pair<Descriptor, Descriptor> make_socket_pair() {
  int ends[2];
  require_done<CommError>(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0,
                          "cannot make a socket pair");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

bool send_message(int socket, std::string_view message) noexcept {
  const ssize_t count =
      TEMP_FAILURE_RETRY(::send(socket, message.data(), message.size(), MSG_NOSIGNAL));
  return count == static_cast<ssize_t>(message.size());
}

std::string receive_message(int socket, int flags) {
  std::string message(kMaxSocketMessage, '\0');
  const ssize_t count = TEMP_FAILURE_RETRY(::recv(socket, message.data(), message.size(), flags));
  message.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return message;
}

}  // namespace lockstep
