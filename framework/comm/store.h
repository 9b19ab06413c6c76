#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

namespace lockstep {

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
  /// Over Gloo, the address that connections are made on; the port is any that is free.
  std::string address = "127.0.0.1";
  /// How long to wait for a replica in every collective.
  std::chrono::milliseconds timeout{60'000};
  /// How long to wait for each of them when connecting.
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
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  bool aborted_ = false;
  std::string reason_;
};

}  // namespace lockstep
