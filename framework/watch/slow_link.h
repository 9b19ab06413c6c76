#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/watch/step_times.h"

namespace lockstep::watch {

/// From a host to another one.
using HostLink = std::pair<int, int>;
/// Bytes a second of what came over each link, at different times.
using LinkRates = std::map<HostLink, std::vector<double>>;

/// Adds what the replicas of `host` have recorded of transfers that have ended.
void add_rates(const std::vector<ReplicaRecording>& recordings, int host, LinkRates& rates);

/// A link's rate, as a replica tells it to those of other hosts.
struct ToldRate {
  int from = 0;     ///< host …
  int to = 0;       ///< … to host
  double rate = 0;  ///< bytes a second; 0: there is none to tell
};

/// The rates of what comes to a host from others, as one of its replicas has recorded it.
class IncomingRates {
 public:
  /// Of what has come to `host` since it was told, the rate of one link, each in turn: the median,
  /// if several transfers have ended. None without a track. A call reads what was recorded since
  /// the last one: microseconds. For one thread.
  [[nodiscard]] ToldRate next(const Recorder::Track* track, int host);

 private:
  LinkRates rates_;          // that are not told
  HostLink last_{-1, -1};    // that was told
  std::uint64_t after_ = 0;  // the last transfer that had ended when it was asked
};

/// The median of each link's rates. Where a few are known, they say nothing.
[[nodiscard]] std::map<HostLink, double> median_rates(const LinkRates& rates);

/// A link that makes steps longer, and what that costs.
struct SlowLink {
  HostLink link{};
  std::optional<int> host{};  ///< that all slow links have at one end, if several are slow
  double rate = 0;            ///< of the slowest link, in bytes a second
  double best_rate = 0;       ///< of the fastest one
  /// The median step is so much shorter with links as fast as the fastest.
  double seconds_a_step = 0;
  double share = 0;  ///< the same as a part of the median step

  /// Whether this is the slow link, or one of the host's.
  [[nodiscard]] bool has(const HostLink& other) const {
    return host ? other.first == host || other.second == host : other == link;
  }
  /// "the link from host 2 to host 0", or "host 2's link".
  [[nodiscard]] std::string name() const;
};

/// The link that is more than three times slower than the fastest one, and makes the median step
/// longer by more than a tenth: calls take as much less time as the bytes do, first of what of them
/// is exposed. None where there is no such, or one link alone. Pure.
[[nodiscard]] std::optional<SlowLink> slow_link(const LinkRates& rates,
                                                const std::vector<StepPace>& steps);

}  // namespace lockstep::watch
