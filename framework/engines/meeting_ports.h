#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::engines {

/// Returns the ports at which the hosts of a job's step may meet, in the order in which host 0
/// tries to listen: from 61440 on, above those that Linux gives to connections (32768 to 60999).
/// They follow from job and step alone. 64 jobs in a row share no port in their first 8 steps.
[[nodiscard]] constexpr std::array<std::uint16_t, 8> meeting_ports(std::uint64_t job,
                                                                   std::uint64_t step) {
  std::array<std::uint16_t, 8> ports{};
  for (std::size_t i = 0; i < ports.size(); ++i) {
    ports[i] = static_cast<std::uint16_t>(61440 + (64 * job + step + 8 * i) % 4096);
  }
  return ports;
}

}  // namespace lockstep::engines
