#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/timeline/step_times.h"

namespace lockstep::timeline {

/// A link from a host to another one.
using HostLink = std::pair<int, int>;
/// Bytes a second of the transfers over each link, at different times.
using LinkRates = std::map<HostLink, std::vector<double>>;

/// Adds the rates of the transfers that the replicas of `host` have recorded and that have ended.
void add_rates(const std::vector<ReplicaRecording>& recordings, int host, LinkRates& rates);

/// A link's rate, as a replica tells it to the replicas of other hosts.
struct ToldRate {
  int from = 0;     ///< host …
  int to = 0;       ///< … to host
  double rate = 0;  ///< bytes a second; 0: there is none to tell
};

/// The rates of the transfers to a host, as one of its replicas has recorded them.
class IncomingRates {
 public:
  /// Returns the rate of one link to `host`, each link in turn: the median of the transfers that
  /// have ended since the link was told. Returns the rate 0 if there is none to tell, or without a
  /// track. A call reads the spans since the last call, which takes microseconds. For one thread.
  [[nodiscard]] ToldRate next(const Recorder::Track* track, int host);

 private:
  LinkRates rates_;          // not told yet
  HostLink last_{-1, -1};    // the last one told
  std::uint64_t after_ = 0;  // the last transfer that was read
};

/// Returns the median of each link's rates. A few rates say nothing: their links are left out.
[[nodiscard]] std::map<HostLink, double> median_rates(const LinkRates& rates);

/// A link that makes steps longer, with its cost.
struct SlowLink {
  HostLink link{};
  std::optional<int> host{};  ///< the host at one end of all slow links, if several are slow
  double rate = 0;            ///< the slowest link's, in bytes a second
  double best_rate = 0;       ///< the fastest one's
  /// The median step would be so much shorter with links as fast as the fastest.
  double seconds_a_step = 0;
  double share = 0;  ///< the same as a part of the median step

  /// True if `other` is the slow link, or one of the host's.
  [[nodiscard]] bool has(const HostLink& other) const {
    return host ? other.first == host || other.second == host : other == link;
  }
  /// Returns "the link from host 2 to host 0", or "host 2's link".
  [[nodiscard]] std::string name() const;
};

/// Returns the link that is more than three times slower than the fastest one, and makes the median
/// step longer by more than a tenth, if calls save the time of their bytes, exposed time first.
/// Returns nothing if there is no such link, or only one. Pure.
[[nodiscard]] std::optional<SlowLink> slow_link(const LinkRates& rates,
                                                const std::vector<StepPace>& steps);

}  // namespace lockstep::timeline
