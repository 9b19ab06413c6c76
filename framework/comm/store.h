#pragma once

#include <chrono>
#include <string>

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

}  // namespace lockstep::comm
