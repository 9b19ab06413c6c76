#include "framework/replicas/job_layout.h"

#include <algorithm>

namespace lockstep::replicas {

JobLayout::JobLayout(std::span<const std::int64_t> replicas_of_hosts, std::int64_t workers) {
  Host next{};
  for (const std::int64_t replicas : replicas_of_hosts) {
    next.replicas.size = replicas;
    next.workers.size = 1;
    hosts_.push_back(next);
    next.replicas.offset += replicas;
  }
  // a / b < c / d without rounding.
  const auto is_less_crowded = [](const Host& one, const Host& other) {
    return one.replicas.size * other.workers.size < other.replicas.size * one.workers.size;
  };
  for (auto left = workers - static_cast<std::int64_t>(hosts_.size()); left > 0; --left) {
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

Shard JobLayout::replicas_of_worker(std::int64_t worker) const {
  const Host& host = hosts_[host_of_worker(worker)];
  Shard part = shard(host.replicas.size, host.workers.size, worker - host.workers.offset);
  part.offset += host.replicas.offset;
  return part;
}

std::int64_t JobLayout::most_replicas_a_worker() const {
  std::int64_t most = 0;
  for (const Host& host : hosts_) {
    most = std::max(most, shard(host.replicas.size, host.workers.size, 0).size);
  }
  return most;
}

}  // namespace lockstep::replicas
