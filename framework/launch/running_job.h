#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "framework/base/non_copyable.h"
#include "framework/base/poll_set.h"
#include "framework/base/waited.h"
#include "framework/calls/call_table.h"
#include "framework/calls/job_watch.h"
#include "framework/calls/long_waits.h"
#include "framework/comm/socket_store.h"
#include "framework/launch/host_links.h"
#include "framework/launch/host_meeting.h"
#include "framework/launch/job_plan.h"
#include "framework/launch/launch.h"
#include "framework/timeline/job_trace.h"
#include "framework/timeline/recorder.h"

namespace lockstep::launcher {

/// Returns the functions of a JobTrace for these options.
[[nodiscard]] timeline::JobTrace::Uses trace_uses(const TraceOptions& options);

/// One run of a job on all of its hosts, or on this host alone, as one host's launcher sees it. A
/// launcher whose link closes, or that says nothing for `timeout`, is lost, and the job has failed.
/// No method blocks but flush(). For one thread, which calls progress() often.
class RunningJob : private NonCopyable {
 public:
  /// Joins `store` with those of all hosts, except for keys that begin with "process/", by which a
  /// host's replicas find each other (connect_shared()). A host asks host 0 for its workers' wanted
  /// keys, so it does not hear of replicas that have nothing to do with these. Deadlock reports on
  /// calls across hosts come to `table`. `options`, the job's, must live as long.
  RunningJob(Hosts& hosts, const LaunchOptions& options, comm::StoreServer& store,
             calls::CallTable& table);

  /// Returns true if the job has begun on several hosts; own() is the number of this one.
  [[nodiscard]] bool has_hosts() const noexcept { return links_.hosts() > 1; }
  [[nodiscard]] std::size_t own() const noexcept { return links_.own(); }

  /// Makes traces of the recordings of this host's workers in `recorder`, when `options` say so.
  void trace(const timeline::Recorder& recorder, const TraceOptions& options,
             std::vector<std::pair<int, pid_t>> workers);

  /// Returns after how long progress() is due, if a trace needs that.
  [[nodiscard]] std::optional<std::chrono::milliseconds> pace() const {
    return trace_ ? trace_->pace() : std::nullopt;
  }

  /// Adds the links to poll for. progress() then does all that can be done without waiting.
  void add_to(PollSet& polled) const { links_.add_to(polled); }
  void progress();
  void flush() { links_.flush(); }

  /// Tells other hosts of a signal that asks replicas to end. asked(): the last one of any host.
  void ask(int signal);
  [[nodiscard]] int asked() const noexcept { return asked_; }
  /// Warns of a stall, on all hosts with the text of the first host that finds it.
  void warn(const calls::Stall& stall);
  /// Notes if a print here waits for its reader. From the next progress() on, all hosts' call
  /// tables say so.
  void hold_up(bool is_held_up) noexcept { is_held_up_ = is_held_up; }
  /// Tells how this host's replicas have ended. The first failure counts.
  void report(const Ending& own);
  /// Returns how the job has ended, on all hosts alike: well if all replicas have, or by its cause.
  [[nodiscard]] const std::optional<Ending>& verdict() const noexcept { return verdict_; }
  /// Returns true if another host's replicas, or the job, have not ended well.
  [[nodiscard]] bool has_failure() const noexcept;

 private:
  using Clock = HostLinks::Clock;

  void hear(const HostLinks::Heard& heard);
  void take_wanted(std::size_t from, const std::string& key);
  void pass_on(const std::string& key, const std::string& value);
  void decide();

  HostLinks& links_;
  const LaunchOptions& options_;
  comm::StoreServer& store_;
  calls::CallTable& table_;
  bool is_held_up_ = false;
  const JobLayout layout_;
  std::optional<calls::JobWatch> watch_;  // in a job on several hosts
  std::optional<timeline::JobTrace> trace_;
  // The store's keys that this host has asked for, and on host 0 the hosts that wait for a key.
  std::set<std::string> wanted_;
  std::map<std::string, std::vector<std::size_t>> awaited_;
  Clock::time_point told_alive_{};
  std::set<std::tuple<std::uint64_t, std::uint64_t, int>> stalls_;  // host 0's: already told
  int asked_ = 0;
  std::map<std::size_t, Ending> reports_;  // host 0 has each host's; another its own and host 0's
  std::optional<Waited> first_failure_;
  std::optional<Ending> verdict_;
};

}  // namespace lockstep::launcher
