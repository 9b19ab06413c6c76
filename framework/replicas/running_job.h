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
#include "framework/comm/store.h"
#include "framework/replicas/host_links.h"
#include "framework/replicas/host_meeting.h"
#include "framework/replicas/job_plan.h"
#include "framework/replicas/launch.h"
#include "framework/watch/board.h"
#include "framework/watch/job_trace.h"
#include "framework/watch/job_watch.h"
#include "framework/watch/long_waits.h"
#include "framework/watch/recorder.h"

namespace lockstep::replicas {

/// What a JobTrace of a job with these options does with traces.
[[nodiscard]] watch::JobTrace::Uses trace_uses(const TraceOptions& options);

/// One run of a job on all of its hosts, seen by one of their launchers; also of a job on this host
/// alone. A launcher whose link closes, or that says nothing for `timeout`, is lost, and the job
/// has failed. No method blocks but flush(). For one thread, which calls progress() often.
class RunningJob : private NonCopyable {
 public:
  /// Makes `store` one of all hosts, but for keys that begin with "process/", by which a host's
  /// replicas find each other (connect_shared()). A host asks host 0 for what its workers want, so
  /// nobody hears of replicas with which these have nothing to do. Verdicts on calls across hosts
  /// come to `board`. `options`, the job's, must live as long.
  RunningJob(Hosts& hosts, const LaunchOptions& options, comm::StoreServer& store,
             watch::Board& board);

  /// Whether the job has begun on several hosts, and the number of this one.
  [[nodiscard]] bool has_hosts() const noexcept { return links_.hosts() > 1; }
  [[nodiscard]] std::size_t own() const noexcept { return links_.own(); }

  /// Makes traces of what this host's workers have in `recorder`, when `options` say so.
  void trace(const watch::Recorder& recorder, const TraceOptions& options,
             std::vector<std::pair<int, pid_t>> workers);

  /// After how long progress() is due, where a trace says that.
  [[nodiscard]] std::optional<std::chrono::milliseconds> pace() const {
    return trace_ ? trace_->pace() : std::nullopt;
  }

  /// Adds what to poll for, and goes on with what can be done now.
  void add_to(PollSet& polled) const { links_.add_to(polled); }
  void progress();
  void flush() { links_.flush(); }

  /// Tells other hosts of a signal that asks replicas to end. asked(): the last one of any host.
  void ask(int signal);
  [[nodiscard]] int asked() const noexcept { return asked_; }
  /// Warns of a stall on all hosts, with the same text: of several that find it, the first one's.
  void warn(const watch::Stall& stall);
  /// From the next progress() on, all hosts' boards say so if a print here waits for its reader.
  void hold_up(bool is_held_up) noexcept { is_held_up_ = is_held_up; }
  /// Tells how this host's replicas have ended. The first failure counts.
  void report(const Ending& own);
  /// How the job has ended, the same on all hosts: well if all replicas have, or by the root cause.
  [[nodiscard]] const std::optional<Ending>& verdict() const noexcept { return verdict_; }
  /// Whether a host has reported that its replicas have not ended well.
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
  watch::Board& board_;
  bool is_held_up_ = false;
  const JobLayout layout_;
  std::optional<watch::JobWatch> watch_;  // of a job on several hosts
  std::optional<watch::JobTrace> trace_;
  // Keys of the store that this host has asked for; of host 0: which hosts wait for a key.
  std::set<std::string> wanted_;
  std::map<std::string, std::vector<std::size_t>> awaited_;
  Clock::time_point told_alive_{};
  std::set<std::tuple<std::uint64_t, std::uint64_t, int>> stalls_;  // of host 0: told ones
  int asked_ = 0;
  std::map<std::size_t, Ending> reports_;  // of host 0: of each host; of another: of itself and 0
  std::optional<Waited> first_failure_;
  std::optional<Ending> verdict_;
};

}  // namespace lockstep::replicas
