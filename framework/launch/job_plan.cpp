#include "framework/launch/job_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "framework/base/text.h"

namespace lockstep::launcher {
JobLayout::JobLayout(std::span<const std::int64_t> replicas_of_hosts, std::int64_t workers) {
  Host next{};
  for (const std::int64_t replicas : replicas_of_hosts) {
    next.replicas.size = replicas;
    next.workers.size = replicas > 0 ? 1 : 0;
    workers -= next.workers.size;
    hosts_.push_back(next);
    next.replicas.offset += replicas;
  }
  // Compares a / b < c / d without rounding. Hosts without replicas are never greater than host 0.
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

std::vector<int> JobLayout::hosts_of_workers() const {
  return mapped(consecutive(std::int64_t{0}, workers()),
                [&](std::int64_t worker) { return static_cast<int>(host_of_worker(worker)); });
}

Range JobLayout::replicas_of_worker(std::int64_t worker) const {
  const Host& host = hosts_[host_of_worker(worker)];
  Range part = shard(host.replicas.size, host.workers.size, worker - host.workers.offset);
  part.offset += host.replicas.offset;
  return part;
}

std::int64_t JobLayout::most_replicas_a_worker() const {
  std::int64_t most = 0;
  for (std::int64_t worker = 0; worker < workers(); ++worker) {
    most = std::max(most, replicas_of_worker(worker).size);
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

bool JobLayout::is_valid() const noexcept {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  Host next{};
  for (const Host& host : hosts_) {
    const bool follows =
        host.replicas.offset == next.replicas.offset && host.workers.offset == next.workers.offset;
    const std::int64_t least = host.replicas.size > 0 ? 1 : 0;
    if (!follows || host.workers.size < least || host.workers.size > host.replicas.size ||
        host.replicas.size >= kMost) {
      return false;
    }
    next.replicas.offset += host.replicas.size;
    next.workers.offset += host.workers.size;
  }
  return !hosts_.empty() && hosts_[0].replicas.size > 0;
}

JobPlan make_plan(const LaunchOptions& options, std::vector<std::int64_t> replicas,
                  const std::vector<std::int64_t>& cores) {
  const std::int64_t sum = std::reduce(replicas.begin(), replicas.end());
  std::int64_t threads = std::numeric_limits<std::int64_t>::max();
  for (std::size_t host = 0; host < replicas.size(); ++host) {
    std::int64_t& own = replicas[host];
    if (sum == 0) own = shard(options.replicas, std::ssize(cores), static_cast<int>(host)).size;
    require(own > 0, "host ", host,
            " does not say how many replicas it runs, but other hosts do: give --host-replicas on "
            "all hosts or on none");
    threads = std::min(threads, std::max<std::int64_t>(1, cores[host] / own));
  }
  require(sum == 0 || sum == options.replicas, "the hosts run ", join(replicas, " + "), " = ", sum,
          " replicas, and the job has ", options.replicas);
  return {JobLayout(replicas, options.workers),
          options.threads_per_replica > 0 ? options.threads_per_replica : threads};
}

}  // namespace lockstep::launcher
