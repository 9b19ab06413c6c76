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

/// What a SocketStore sends. The answer is an optional text, the value that a key has.
struct StoreRequest {
  std::string key;
  std::optional<std::string> value{};  ///< to publish; none: the key is asked for
  LOCKSTEP_FIELDS(key, value)
};

/// A store for replicas that are processes of one host. It sends requests to a StoreServer in the
/// parent. It has no name on the host, and nothing remains of it when the processes are gone.
class SocketStore final : public Store, private NonCopyable {
 public:
  /// Takes over `socket`, an end of make_socket_pair(), as one of so many `workers` of the parent.
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
  /// Answers the request that waits on `socket`. False if the other end is closed. The answer to a
  /// malformed request is the same as for an unknown key.
  bool answer(int socket);

  /// What this process itself publishes.
  void set(const std::string& key, const std::string& value) { values_[key] = value; }
  /// What has been published under `key`, if anything has.
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;

  /// Called when a child publishes a value.
  std::function<void(const std::string& key, const std::string& value)> on_set{};
  /// Called when a child asks for a key under which there is nothing yet. It asks again.
  std::function<void(const std::string& key)> on_missing{};

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace lockstep::comm
