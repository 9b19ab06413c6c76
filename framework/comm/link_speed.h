#pragma once

#include <cstddef>
#include <iosfwd>
#include <string_view>

namespace lockstep::comm {

/// The speed of messages between two hosts, or two processes of a host. Its text is "0.21 ms, 117
/// MB/s".
struct LinkSpeed {
  double latency;           ///< seconds from the sending of a small message to its arrival
  double bytes_per_second;  ///< in one direction while as much goes in the other

  /// Reads a text as above, or with GB/s. Throws ValueError for another one, or below 1 kB/s.
  [[nodiscard]] static LinkSpeed parse(std::string_view text);
  friend std::ostream& operator<<(std::ostream& out, const LinkSpeed& speed);
  bool operator==(const LinkSpeed&) const = default;
};

/// The speed that is assumed where nobody has measured: between processes of one host.
inline constexpr LinkSpeed kLoopback{.latency = 20e-6, .bytes_per_second = 2e9};

/// Transports send messages of up to this size at once. Before a larger one goes, the receiver says
/// that it waits for it, which takes one more latency.
inline constexpr std::size_t kSentAtOnce = std::size_t{64} << 10;

class Communicator;

/// Measures the speed of the links of `group`, which has one replica on each host, while all of
/// them are in use: each replica sends to the next one. The slowest link counts. All replicas call
/// this and get the same speed.
[[nodiscard]] LinkSpeed measure_links(Communicator& group);
/// Returns the seconds that measure_links() takes on such links: 0.01 at 10 Gbit/s, 0.3 at 100
/// Mbit/s, more where a message of 64 KiB or latencies take longer.
[[nodiscard]] double seconds_to_measure(const LinkSpeed& speed);

}  // namespace lockstep::comm
