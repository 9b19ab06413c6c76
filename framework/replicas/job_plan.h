#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/record.h"
#include "framework/comm/network/link.h"
#include "framework/replicas/launch.h"

namespace lockstep::replicas {

/// Which of a job's replicas and workers are on which host. Both are numbered host by host, and
/// each worker runs a contiguous part of its host's replicas.
class JobLayout {
 public:
  struct Host {
    Range replicas{};
    Range workers{};
    LOCKSTEP_FIELDS(replicas.offset, replicas.size, workers.offset, workers.size)
  };

  /// None yet.
  JobLayout() = default;

  /// Hosts with so many replicas each; host 0 has some. `workers` (at least one a host that has
  /// replicas, at most one a replica) go one by one to the host with the most replicas a worker.
  JobLayout(std::span<const std::int64_t> replicas_of_hosts, std::int64_t workers);

  [[nodiscard]] const std::vector<Host>& hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::int64_t replicas() const noexcept { return hosts_.back().replicas.end(); }
  [[nodiscard]] std::int64_t workers() const noexcept { return hosts_.back().workers.end(); }

  [[nodiscard]] std::size_t host_of_worker(std::int64_t worker) const;
  /// The same of each worker.
  [[nodiscard]] std::vector<int> hosts_of_workers() const;
  [[nodiscard]] Range replicas_of_worker(std::int64_t worker) const;
  /// The replicas of the worker that has the most.
  [[nodiscard]] std::int64_t most_replicas_a_worker() const;

  /// The same replicas on the hosts of which `stays` is true, host 0 among them. The others'
  /// replicas go to these evenly, and their workers are gone.
  [[nodiscard]] JobLayout without(const std::vector<bool>& stays) const;

  LOCKSTEP_FIELDS(hosts_)
  /// Of one that another process tells: whether it can be.
  [[nodiscard]] bool is_valid() const noexcept;

 private:
  std::vector<Host> hosts_;
};

/// What all workers of a job have to know to find their places.
struct JobPlan {
  JobLayout layout{};
  std::int64_t math_threads = 1;  ///< of each replica
  /// How this host's workers reach those of other hosts; none on a single host.
  std::optional<comm::NetworkOptions> network{};
  LOCKSTEP_FIELDS(layout, math_threads, network)

  /// What a time to wait becomes where it is for other workers' replicas, which run in turns.
  [[nodiscard]] std::chrono::milliseconds in_turns(std::chrono::milliseconds time) const {
    return layout.workers() == 1 ? time : time * layout.most_replicas_a_worker();
  }
};
/// The plan of a job on hosts that run so many `replicas` each (0: an even share) and have so many
/// cores, as yet without a network. ValueError if they don't fit the job's replicas.
[[nodiscard]] JobPlan make_plan(const LaunchOptions& options, std::vector<std::int64_t> replicas,
                                const std::vector<std::int64_t>& cores);

}  // namespace lockstep::replicas
