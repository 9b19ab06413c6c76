#pragma once

#include <chrono>
#include <string>

namespace lockstep::comm {

/// A small map from keys to bytes that all replicas see, by which they find each other before they
/// are connected. Any thread may use it. Keys are written once.
class Store {
 public:
  virtual ~Store() = default;

  /// Publishes `value` under `key`.
  virtual void set(const std::string& key, const std::string& value) = 0;

  /// Waits for the value under `key` and returns it. Throws Timeout, naming the key, when that
  /// takes longer than `timeout`.
  [[nodiscard]] virtual std::string get(const std::string& key,
                                        std::chrono::milliseconds timeout) = 0;
};

/// Options for replicas that meet in a store and connect.
struct ConnectOptions {
  /// The longest wait for a replica in every collective.
  std::chrono::milliseconds timeout{60'000};
  /// The longest wait for each replica when connecting.
  std::chrono::milliseconds connect_timeout{60'000};
};

}  // namespace lockstep::comm
