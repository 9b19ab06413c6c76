#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "framework/base/non_copyable.h"
#include "trainers/bench/reports/report.h"
#include "trainers/bench/systems/system.h"
#include "trainers/bench/testing/host_network.h"

namespace lockstep::bench {

/// Several hosts on this machine, as --hosts asks for: namespaces that end with this object. Needs
/// root. Without --hosts it is this machine as it is, and changes nothing.
class Hosts : private NonCopyable {
 public:
  /// CommError if they cannot be made.
  explicit Hosts(const NetworkFacts& network);

  [[nodiscard]] const NetworkFacts& facts() const noexcept { return facts_; }

  /// The same systems, with their replicas spread over the hosts.
  [[nodiscard]] std::vector<System> spread(std::vector<System> systems) const;
  /// What counts the bytes that host 0 has sent so far, with all headers; empty without --hosts.
  [[nodiscard]] std::function<std::int64_t()> sent_bytes() const;

 private:
  NetworkFacts facts_;
  std::unique_ptr<const testing::HostNetwork> network_;
};

}  // namespace lockstep::bench
