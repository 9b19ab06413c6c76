#include "framework/comm/store.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"

namespace lockstep::comm {
namespace {

constexpr std::chrono::milliseconds kLookAround{50};

// A request is one message: "S" key "\0" value, or "G" key. The answer to a set is "S"; to a get it
// is "V" value, or "N" when there is nothing yet.
constexpr std::size_t kMaxMessage = 64 * 1024;

// "" if the other end is closed.
std::string receive_message(int socket) {
  std::string message(kMaxMessage, '\0');
  const ssize_t count = TEMP_FAILURE_RETRY(::recv(socket, message.data(), message.size(), 0));
  message.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return message;
}

bool send_message(int socket, std::string_view message) {
  const ssize_t count =
      TEMP_FAILURE_RETRY(::send(socket, message.data(), message.size(), MSG_NOSIGNAL));
  return count == static_cast<ssize_t>(message.size());
}

}  // namespace

void MemoryStore::set(const std::string& key, const std::string& value) {
  {
    const MutexLock lock(mutex_);
    values_[key] = value;
  }
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  MutexLock lock(mutex_);
  Waited waited;
  while (!cancellation_.is_cancelled() && !values_.contains(key)) {
    const auto rest = timeout - waited.look();
    if (rest <= rest.zero()) {
      throw Timeout(str("nobody published '", key, "' within ", timeout.count(), " ms"));
    }
    changed_.wait_for(lock, std::min<Waited::Clock::duration>(rest, kLookAround));
  }
  cancellation_.check();
  return values_.at(key);
}

void MemoryStore::abort(const std::string& reason) noexcept {
  {
    const MutexLock lock(mutex_);
    cancellation_.cancel(reason);
  }
  changed_.notify_all();
}

std::pair<int, int> make_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw CommError(str("cannot make a socket pair: ", text_of_errno(errno)));
  }
  return {ends[0], ends[1]};
}

SocketStore::~SocketStore() {
  ::close(socket_);
}

std::string SocketStore::ask(const std::string& request) {
  require(request.size() <= kMaxMessage, "store: a message of ", request.size(), " bytes is over ",
          kMaxMessage);
  const MutexLock lock(mutex_);
  std::string reply;
  if (send_message(socket_, request)) reply = receive_message(socket_);
  if (reply.empty()) throw ReplicaLost("the launcher is gone");
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
  const std::string request = receive_message(socket);
  if (request.empty()) return false;
  const std::size_t end = request.find('\0');
  if (request[0] == 'S' && end != std::string::npos) {
    const std::string key = request.substr(1, end - 1);
    const std::string& value = values_[key] = request.substr(end + 1);
    if (on_set) on_set(key, value);
    return send_message(socket, "S");
  }
  if (request[0] != 'G') return send_message(socket, "N");
  const std::string key = request.substr(1);
  if (const auto value = find(key)) return send_message(socket, "V" + *value);
  if (on_miss) on_miss(key);
  return send_message(socket, "N");
}

std::optional<std::string> StoreServer::find(const std::string& key) const {
  const auto value = values_.find(key);
  return value == values_.end() ? std::nullopt : std::optional(value->second);
}

}  // namespace lockstep::comm
