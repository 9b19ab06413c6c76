#include "framework/replicas/job_layout.h"

#include <algorithm>

namespace lockstep::replicas {

JobLayout::JobLayout(std::span<const std::int64_t> replicas_of_hosts, std::int64_t workers) {
  Host next{};
  for (const std::int64_t replicas : replicas_of_hosts) {
    next.replicas.size = replicas;
    next.workers.size = replicas > 0 ? 1 : 0;
    workers -= next.workers.size;
    hosts_.push_back(next);
    next.replicas.offset += replicas;
  }
  // a / b < c / d without rounding. Hosts without replicas come out equal, and after host 0.
  const auto is_less_crowded = [](const Host& one, const Host& other) {
    return one.replicas.size * other.workers.size < other.replicas.size * one.workers.size;
  };
  for (; workers > 0; --workers) {
    ++std::ranges::max_element(hosts_, is_less_crowded)->workers.size;
  }
  std::int64_t first = 0;
  for (Host& host : hosts_) {
    host.workers.offset = first;
    first += host.workers.size;
  }
}

std::size_t JobLayout::host_of_worker(std::int64_t worker) const {
  const auto after = std::ranges::upper_bound(hosts_, worker, {},
                                              [](const Host& host) { return host.workers.offset; });
  return static_cast<std::size_t>(after - hosts_.begin() - 1);
}

Range JobLayout::replicas_of_worker(std::int64_t worker) const {
  const Host& host = hosts_[host_of_worker(worker)];
  Range part = shard(host.replicas.size, host.workers.size, worker - host.workers.offset);
  part.offset += host.replicas.offset;
  return part;
}

std::int64_t JobLayout::most_replicas_a_worker() const {
  std::int64_t most = 0;
  for (const Host& host : hosts_) {
    if (host.workers.size == 0) continue;
    most = std::max(most, shard(host.replicas.size, host.workers.size, 0).size);
  }
  return most;
}

JobLayout JobLayout::without(const std::vector<bool>& stays) const {
  std::int64_t orphans = 0;
  std::int64_t workers = 0;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    if (stays[host]) workers += hosts_[host].workers.size;
    if (!stays[host]) orphans += hosts_[host].replicas.size;
  }
  const auto left = std::ranges::count(stays, true);
  std::int64_t at = 0;
  std::vector<std::int64_t> replicas;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    replicas.push_back(stays[host] ? hosts_[host].replicas.size + shard(orphans, left, at++).size
                                   : 0);
  }
  return {replicas, workers};
}

}  // namespace lockstep::replicas
