#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "framework/base/descriptor.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/record.h"
#include "framework/comm/store.h"

namespace lockstep::comm {

/// A request of a SocketStore. The answer is an optional text: the value of the key.
struct StoreRequest {
  std::string key;
  std::optional<std::string> value{};  ///< to publish; none: the key is asked for
  LOCKSTEP_FIELDS(key, value)
};

/// A store for replicas that are processes of one host. It sends requests to a StoreServer in the
/// parent. It has no name on the host, and nothing remains of it when the processes are gone.
class SocketStore final : public Store, private NonCopyable {
 public:
  /// Takes over `socket`, an end of make_socket_pair(), as one of `workers` workers of the parent.
  explicit SocketStore(Descriptor socket, std::int64_t workers = 1)
      : socket_(std::move(socket)), workers_(workers) {}

  /// Throws ReplicaLost when the parent is gone.
  void set(const std::string& key, const std::string& value) override { (void)ask({key, value}); }
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  std::optional<std::string> ask(const StoreRequest& request);

  Descriptor socket_;
  std::int64_t workers_;
  Mutex mutex_;  // one question at a time
};

/// The parent's side of the SocketStores of its children: one map that all of them see.
class StoreServer {
 public:
  /// Answers the request that waits on `socket`; returns false if the other end is closed. A
  /// malformed request gets the same answer as an unknown key.
  bool answer(int socket);

  /// Publishes a value of this process itself.
  void set(const std::string& key, const std::string& value) { values_[key] = value; }
  /// Returns the value under `key`, if there is one.
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;

  /// Called when a child publishes a value.
  std::function<void(const std::string& key, const std::string& value)> on_set{};
  /// Called when a child asks for a key that has no value yet. The child will ask again.
  std::function<void(const std::string& key)> on_missing{};

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace lockstep::comm
