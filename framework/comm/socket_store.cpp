#include "framework/comm/socket_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"

namespace lockstep {
namespace {

// A request is one message: "S" key "\0" value, or "G" key. The answer to a set is "S"; to a get it
// is "V" value, or "N" when there is nothing yet.
constexpr std::size_t kMaxMessage = 64 * 1024;

std::string receive_message(int socket, bool& closed) {
  std::string message(kMaxMessage, '\0');
  ssize_t count = 0;
  do {
    count = ::recv(socket, message.data(), message.size(), 0);
  } while (count < 0 && errno == EINTR);
  closed = count <= 0;
  message.resize(closed ? 0 : static_cast<std::size_t>(count));
  return message;
}

bool send_message(int socket, std::string_view message) {
  ssize_t count = 0;
  do {
    count = ::send(socket, message.data(), message.size(), MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(message.size());
}

}  // namespace

std::pair<int, int> make_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw CommError(str("cannot make a socket pair: ", std::strerror(errno)));
  }
  return {ends[0], ends[1]};
}

SocketStore::SocketStore(int socket) : socket_(socket) {}

SocketStore::~SocketStore() {
  ::close(socket_);
}

std::string SocketStore::ask(const std::string& request) {
  require(request.size() <= kMaxMessage, "store: a message of ", request.size(), " bytes is over ",
          kMaxMessage);
  const std::lock_guard lock(mutex_);
  bool closed = false;
  std::string reply;
  if (send_message(socket_, request)) reply = receive_message(socket_, closed);
  if (closed || reply.empty()) throw ReplicaLost("the launcher is gone");
  return reply;
}

void SocketStore::set(const std::string& key, const std::string& value) {
  (void)ask("S" + key + '\0' + value);
}

// The parent answers at once and this end asks again: so no thread of a process ever waits for a
// key with the socket in its hands while another must publish that very key.
std::string SocketStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  Waited waited;
  auto pause = std::chrono::microseconds(50);
  for (;;) {
    std::string reply = ask("G" + key);
    if (reply[0] == 'V') return reply.substr(1);
    if (waited.look() >= timeout) {
      throw Timeout(str("nobody published '", key, "' within ", timeout.count(), " ms"));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(2000));
  }
}

bool StoreServer::answer(int socket) {
  bool closed = false;
  const std::string request = receive_message(socket, closed);
  if (closed) return false;
  const std::size_t end = request.find('\0');
  if (request[0] == 'S' && end != std::string::npos) {
    values_[request.substr(1, end - 1)] = request.substr(end + 1);
    return send_message(socket, "S");
  }
  const auto value = values_.find(request.substr(1));
  if (request[0] != 'G' || value == values_.end()) return send_message(socket, "N");
  return send_message(socket, "V" + value->second);
}

}  // namespace lockstep
