#pragma once

#include <cstddef>
#include <iosfwd>
#include <string_view>

namespace lockstep::comm {

/// How fast messages travel between two hosts, or two processes of a host. As text: "0.21 ms, 117
/// MB/s".
struct LinkSpeed {
  double latency;           ///< seconds from the sending of a small message to its arrival
  double bytes_per_second;  ///< in one direction while as much goes in the other

  /// ValueError unless `text` is one as above, or with GB/s, with a bandwidth of at least 1 kB/s.
  [[nodiscard]] static LinkSpeed parse(std::string_view text);
  friend std::ostream& operator<<(std::ostream& out, const LinkSpeed& speed);
  bool operator==(const LinkSpeed&) const = default;
};

/// What is assumed where nobody has measured: processes of one host.
inline constexpr LinkSpeed kLoopback{.latency = 20e-6, .bytes_per_second = 2e9};

/// Transports send messages of up to so many bytes at once. Before larger ones go, the receiver
/// says that it waits for them, which takes one more latency.
inline constexpr std::size_t kSentAtOnce = std::size_t{64} << 10;

class Communicator;

/// Measures how fast the links of `group`, which has one replica on each host, are while all of
/// them are in use: each replica sends to the next one. The slowest counts. All replicas call this
/// and get the same.
[[nodiscard]] LinkSpeed measure_links(Communicator& group);
/// How long that takes on such links, in seconds: 0.01 at 10 Gbit/s, 0.3 at 100 Mbit/s, more
/// where a message of 64 KiB or latencies take longer.
[[nodiscard]] double seconds_to_measure(const LinkSpeed& speed);

}  // namespace lockstep::comm
