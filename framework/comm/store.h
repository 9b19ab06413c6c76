#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/descriptor.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/record.h"
#include "framework/comm/cancellation.h"

namespace lockstep::comm {

/// Where replicas find each other before they are connected: a small map from keys to bytes that
/// all of them see. Any thread may use it. Keys are written once.
class Store {
 public:
  virtual ~Store() = default;

  /// Publishes `value` under `key`.
  virtual void set(const std::string& key, const std::string& value) = 0;

  /// The value under `key`, waiting for it to be published. Throws Timeout, naming the key, when
  /// that takes longer than `timeout`.
  [[nodiscard]] virtual std::string get(const std::string& key,
                                        std::chrono::milliseconds timeout) = 0;
};

/// How replicas that meet in a store connect.
struct ConnectOptions {
  /// How long to wait for a replica in every collective.
  std::chrono::milliseconds timeout{60'000};
  /// How long to wait for each replica when connecting.
  std::chrono::milliseconds connect_timeout{60'000};
};

/// A store for replicas that are threads of one process.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  /// Ends every get() that waits, now and later, with Aborted(`reason`).
  void abort(const std::string& reason) noexcept;

 private:
  Mutex mutex_;
  Condition changed_;
  std::map<std::string, std::string> values_ LOCKSTEP_GUARDED_BY(mutex_);
  Cancellation cancellation_;
};

/// Makes a connected pair of local sockets, which keep message boundaries and are closed on exec.
/// They have no name: only this process and children with an end reach them. Throws CommError.
[[nodiscard]] std::pair<Descriptor, Descriptor> make_socket_pair();
/// Sends a message, which must not be empty, into one of them, or into another socket. False unless
/// it takes all of it now.
bool send_message(int socket, std::string_view message) noexcept;
/// The next message, with recv(2)'s `flags`; "" if the other end is closed, or there is none.
[[nodiscard]] std::string receive_message(int socket, int flags = 0);

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
