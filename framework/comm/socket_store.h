#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "framework/comm/store.h"

namespace lockstep {

/// A connected pair of local sockets that keep message boundaries, closed on exec. It has no name:
/// only this process and those that inherit an end can reach it. Throws CommError.
[[nodiscard]] std::pair<int, int> make_socket_pair();

/// A store for replicas that are processes of one host: this end asks, a StoreServer in the parent
/// answers. It has no name on the host, and nothing remains of it when the processes are gone.
class SocketStore final : public Store {
 public:
  /// Takes over `socket`, an end of make_socket_pair().
  explicit SocketStore(int socket);
  ~SocketStore() override;
  SocketStore(const SocketStore&) = delete;
  SocketStore& operator=(const SocketStore&) = delete;

  /// Throws ReplicaLost when the parent is gone.
  void set(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  std::string ask(const std::string& request);

  int socket_;
  std::mutex mutex_;  // one question at a time
};

/// The parent's side of the SocketStores of its children: one map that all of them see.
class StoreServer {
 public:
  /// Answers the request that waits on `socket`. False if the other end is closed. A malformed
  /// request is answered as one for an unknown key.
  bool answer(int socket);

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace lockstep
