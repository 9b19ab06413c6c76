#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/range.h"

namespace lockstep::replicas {

/// Which of a job's replicas and workers are on which host. Both are numbered host by host, and
/// each worker runs a contiguous part of its host's replicas.
class JobLayout {
 public:
  struct Host {
    Range replicas;
    Range workers;
  };

  /// Hosts with so many replicas each; host 0 has some. `workers` (at least one a host that has
  /// replicas, at most one a replica) go one by one to the host with the most replicas a worker.
  JobLayout(std::span<const std::int64_t> replicas_of_hosts, std::int64_t workers);

  [[nodiscard]] const std::vector<Host>& hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::int64_t replicas() const noexcept { return hosts_.back().replicas.end(); }
  [[nodiscard]] std::int64_t workers() const noexcept { return hosts_.back().workers.end(); }

  [[nodiscard]] std::size_t host_of_worker(std::int64_t worker) const;
  [[nodiscard]] Range replicas_of_worker(std::int64_t worker) const;
  /// The replicas of the worker that has the most.
  [[nodiscard]] std::int64_t most_replicas_a_worker() const;

  /// The same replicas on the hosts of which `stays` is true, host 0 among them. The others'
  /// replicas go to these evenly, and their workers are gone.
  [[nodiscard]] JobLayout without(const std::vector<bool>& stays) const;

 private:
  std::vector<Host> hosts_;
};

}  // namespace lockstep::replicas
