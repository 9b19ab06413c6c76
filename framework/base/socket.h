#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/descriptor.h"

namespace lockstep {

/// The longest message that receive_message() returns whole.
inline constexpr std::size_t kMaxSocketMessage = 64 * 1024;

/// Makes a connected pair of local, unnamed sockets, which keep message boundaries and are closed
/// on exec: only this process and children with an end reach them. Throws CommError.
[[nodiscard]] std::pair<Descriptor, Descriptor> make_socket_pair();
/// Sends a message, which must not be empty, into a socket of a pair, or into another socket.
/// Returns false unless the socket takes the whole message now.
bool send_message(int socket, std::string_view message) noexcept;
/// Receives a message, with recv(2)'s `flags`; "" if the other end is closed or there is none.
[[nodiscard]] std::string receive_message(int socket, int flags = 0);

}  // namespace lockstep
