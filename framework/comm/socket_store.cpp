#include "framework/comm/socket_store.h"

#include <algorithm>
#include <thread>

#include "framework/base/errors.h"
#include "framework/base/socket.h"
#include "framework/base/waited.h"

namespace lockstep::comm {

std::optional<std::string> SocketStore::ask(const StoreRequest& request) {
  const std::string bytes = encode(request);
  require(bytes.size() <= kMaxSocketMessage, "store: a message of ", bytes.size(),
          " bytes is over ", kMaxSocketMessage);
  const MutexLock lock(mutex_);
  std::string reply;
  if (send_message(socket_.get(), bytes)) reply = receive_message(socket_.get());
  if (reply.empty()) throw ReplicaLost("the launcher is gone");
  return decode<std::optional<std::string>>(reply, "the launcher's answer");
}

// The parent answers at once and this end asks again: a thread that kept the socket until its key
// comes would keep out another thread that must publish that very key.
std::string SocketStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  Waited waited;
  auto pause = std::chrono::microseconds(50);
  // 64 workers ask 640 times a second together; up to 8 see a value within 2 ms.
  const auto longest = std::max<std::int64_t>(2000, workers_ * workers_ * 25);
  for (;;) {
    if (auto value = ask({key})) return *std::move(value);
    require<Timeout>(waited.look() < timeout, "nobody published '", key, "' within ",
                     timeout.count(), " ms");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(longest));
  }
}

std::optional<std::string> StoreServer::find(const std::string& key) const {
  const auto value = values_.find(key);
  return value == values_.end() ? std::nullopt : std::optional(value->second);
}

bool StoreServer::answer(int socket) {
  const std::string bytes = receive_message(socket);
  if (bytes.empty()) return false;
  std::optional<std::string> answer;
  try {
    const auto request = decode<StoreRequest>(bytes, "a worker's request");
    if (request.value) {
      set(request.key, *request.value);
      if (on_set) on_set(request.key, *request.value);
    } else {
      answer = find(request.key);
      if (!answer && on_missing) on_missing(request.key);
    }
  } catch (const DataError&) {
    // A malformed request is answered like one for an unknown key.
  }
  return send_message(socket, encode(answer));
}

}  // namespace lockstep::comm
