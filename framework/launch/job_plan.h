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
#include "framework/launch/launch.h"

namespace lockstep::launcher {

/// The distribution of a job's replicas and workers over its hosts. Both are numbered host by host,
/// and each worker runs a contiguous part of its host's replicas.
class JobLayout {
 public:
  struct Host {
    Range replicas{};
    Range workers{};
    LOCKSTEP_FIELDS(replicas.offset, replicas.size, workers.offset, workers.size)
  };

  /// Makes a layout without hosts.
  JobLayout() = default;

  /// Lays out hosts with so many replicas each, some on host 0. `workers` (at least one a host with
  /// replicas, at most one a replica) go one by one to the host with the most replicas a worker.
  JobLayout(std::span<const std::int64_t> replicas_of_hosts, std::int64_t workers);

  [[nodiscard]] const std::vector<Host>& hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::int64_t replicas() const noexcept { return hosts_.back().replicas.end(); }
  [[nodiscard]] std::int64_t workers() const noexcept { return hosts_.back().workers.end(); }

  [[nodiscard]] std::size_t host_of_worker(std::int64_t worker) const;
  /// Returns host_of_worker() of each worker.
  [[nodiscard]] std::vector<int> hosts_of_workers() const;
  [[nodiscard]] Range replicas_of_worker(std::int64_t worker) const;
  /// Returns how many replicas the worker with the most has.
  [[nodiscard]] std::int64_t most_replicas_a_worker() const;

  /// Returns a layout of the same replicas on the hosts whose `stays` is true, host 0 among them.
  /// These hosts share the others' replicas evenly, and the others' workers are gone.
  [[nodiscard]] JobLayout without(const std::vector<bool>& stays) const;

  LOCKSTEP_FIELDS(hosts_)
  /// Returns true if the layout is possible. For layouts that another process sends.
  [[nodiscard]] bool is_valid() const noexcept;

 private:
  std::vector<Host> hosts_;
};

/// The plan of a job, by which all workers find their places.
struct JobPlan {
  JobLayout layout{};
  std::int64_t math_threads = 1;  ///< of each replica
  /// The network by which this host's workers reach other hosts'; none on a single host.
  std::optional<comm::NetworkOptions> network{};
  LOCKSTEP_FIELDS(layout, math_threads, network)

  /// Returns `time` as it is for waits on other workers, whose replicas run in turns.
  [[nodiscard]] std::chrono::milliseconds in_turns(std::chrono::milliseconds time) const {
    return layout.workers() == 1 ? time : time * layout.most_replicas_a_worker();
  }
};
/// Returns the plan of a job on hosts with so many `replicas` (0 on all: even shares) and `cores`
/// each, as yet without a network. Throws ValueError if they don't fit the job's replicas.
[[nodiscard]] JobPlan make_plan(const LaunchOptions& options, std::vector<std::int64_t> replicas,
                                const std::vector<std::int64_t>& cores);

}  // namespace lockstep::launcher
