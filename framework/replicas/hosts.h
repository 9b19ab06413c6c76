#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include <poll.h>

#include "framework/base/non_copyable.h"
#include "framework/comm/network/link.h"
#include "framework/comm/network/secret.h"
#include "framework/comm/store.h"
#include "framework/replicas/job_layout.h"
#include "framework/replicas/launch.h"
#include "framework/replicas/stall_watch.h"
#include "framework/replicas/stop_signals.h"
#include "framework/watch/board.h"

namespace lockstep::replicas {

/// What all workers of a job have to know to find their places.
struct JobPlan {
  JobLayout layout;
  std::int64_t math_threads;  ///< of each replica
  /// How this host's workers reach those of other hosts; none on a single host.
  struct Network {
    std::string address;  ///< numeric, of this host
    comm::JobId job;
    comm::Secret secret;  ///< of this job alone
  };
  std::optional<Network> network = std::nullopt;

  /// For a worker, which finds it in its store under kPlanKey.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static JobPlan parse(const std::string& text);
};
inline constexpr const char* kPlanKey = "local/plan";

/// How a job ended, or what a host has to say of that.
struct HostVerdict {
  int status = 0;        ///< launch()'s; 0: all functions have returned
  std::string text{};    ///< for people
  bool is_lost = false;  ///< whether a replica was lost
  int doubt = 0;         ///< see ErrorTraits
};

/// The launchers of a job's hosts, seen by one of them. Host 0 listens at the rendezvous, the
/// others connect to it; what two others have to tell each other goes through host 0. A launcher
/// that says nothing for options.timeout while replicas run is lost. After the meeting no method
/// blocks. For one thread, which calls progress() often.
class Hosts : private NonCopyable {
 public:
  /// Meets the others: they compare what must be the same, and agree on the job's layout and math
  /// threads. Throws ValueError if they differ, Timeout, naming them, if some do not come in
  /// options.timeout, CommError, and Stopped by a signal of `stop`. What ends the meeting on one
  /// host ends it on all.
  Hosts(const LaunchOptions& options, const StopSignals& stop);
  ~Hosts();

  [[nodiscard]] const JobPlan& plan() const noexcept { return *plan_; }
  /// This host's number.
  [[nodiscard]] std::size_t own() const noexcept { return own_; }

  /// In a forked worker: closes its copies of the connections, which stay the launcher's.
  void forget() noexcept;

  /// Makes `server` a store of all hosts, but for keys that begin with "local/".
  void serve(comm::StoreServer& server);

  /// Makes `board` one of all hosts, until the run is over: asks the other hosts for snapshots when
  /// it wants newer ones, with one request to a host under way, and answers theirs.
  void share(watch::Board& board);

  /// Adds what to poll for, and goes on with what can be done now.
  void add_polled(std::vector<pollfd>& polled) const;
  void progress();

  /// Tells other hosts of a signal that asks replicas to end. asked(): the last one of any host.
  void ask(int signal);
  [[nodiscard]] int asked() const noexcept { return asked_; }
  /// Warns of a stall on all hosts, with the same text. If several hosts find the same stall, only
  /// the first one's text is shown.
  void warn(const Stall& stall);
  /// Tells how this host's replicas have ended. The first failure counts.
  void report(const HostVerdict& own);
  /// How the job has ended, the same on all hosts: well if all hosts' replicas have, otherwise by
  /// the root cause.
  [[nodiscard]] const std::optional<HostVerdict>& verdict() const noexcept { return verdict_; }
  /// Whether a host has reported that its replicas have not ended well.
  [[nodiscard]] bool has_failure() const noexcept;
  /// Goes on until what was said is sent, for a moment at most.
  void flush();

  /// Before a job that has lost a replica starts again: waits until all hosts call this, and
  /// forgets the run before. Hosts that are gone, or don't come within `timeout`, are left out of
  /// the plan from here on; without host 0 the job is over. `prepare` is called on host 0 first.
  /// Throws, on all hosts, what it throws on any, and Stopped by a signal of `stop`.
  void begin_again(std::chrono::milliseconds timeout, const std::function<void()>& prepare,
                   const StopSignals& stop);

 private:
  struct Peer;
  using Clock = std::chrono::steady_clock;

  void meet(const LaunchOptions& options);
  void meet_again(std::chrono::milliseconds timeout, const std::function<void()>& prepare);
  void during(const StopSignals& stop, const std::function<void()>& meeting);
  void check_stop();
  void meet_as_first(const LaunchOptions& options, const comm::Secret& secret);
  void meet_as_other(const LaunchOptions& options, const comm::Secret& secret);
  void try_or_tell(const std::function<void()>& step);
  void choose_address(const LaunchOptions& options);
  void make_plan(const LaunchOptions& options);
  void wait(Clock::time_point deadline, const std::function<bool()>& enough,
            const std::function<std::string()>& missing);
  void check_meeting() const;
  void hear(Peer& from, const std::string& text);
  void look_at(Peer& peer);
  void decide();
  void decide_as_first();
  void send(const Peer& to, nlohmann::json message);
  void send_all(const nlohmann::json& message, const Peer* but = nullptr);
  void tell_alive();
  void poll_until(Clock::time_point deadline);
  void wait_for_those_left(std::chrono::milliseconds timeout);
  void go_on_without_others();
  void change_plan(JobPlan plan);
  void publish(const std::string& key, const std::string& value, const Peer* from);
  void want_snapshots();
  void answer_look(std::size_t host, std::uint64_t request);
  void hear_look(const nlohmann::json& look, const Peer& from);
  void hear_seen(const nlohmann::json& seen);

  std::size_t own_;
  std::chrono::milliseconds patience_;  // with others that say nothing
  Clock::time_point told_alive_{};
  std::int64_t run_ = 0;  // counts restarts; what is said of another run is not heard
  std::string own_address_;
  std::string told_;                          // by host 0
  std::exception_ptr refusal_;                // another host's error
  const StopSignals* stop_ = nullptr;         // while hosts meet
  std::unique_ptr<comm::Listener> listener_;  // of host 0, while hosts meet
  std::vector<std::unique_ptr<Peer>> peers_;  // of host 0: the others; of another: host 0
  std::optional<JobPlan> plan_;
  comm::StoreServer* server_ = nullptr;
  std::set<std::string> wanted_;  // keys for which host 0 was asked
  watch::Board* board_ = nullptr;
  std::uint64_t last_look_ = 0;     // the last request for snapshots
  std::set<std::size_t> looks_at_;  // hosts that have not answered one yet
  std::vector<std::pair<std::size_t, std::uint64_t>> looks_of_;     // others' that came too early
  std::set<std::tuple<std::uint64_t, std::uint64_t, int>> stalls_;  // of host 0: told ones
  int asked_ = 0;
  std::optional<HostVerdict> own_report_;
  std::optional<Clock::time_point> first_failure_;
  std::optional<HostVerdict> verdict_;
};

}  // namespace lockstep::replicas
