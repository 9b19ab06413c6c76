#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

namespace lockstep {

namespace watch {
struct Trace;
struct TracedSteps;
}  // namespace watch
struct JobFailure;

enum class LaunchMode { processes, threads };

[[nodiscard]] constexpr const char* name_of(LaunchMode mode) {
  return mode == LaunchMode::processes ? "processes" : "threads";
}

/// How replicas pass their bytes on: `automatic` is memory that they share, since they are on one
/// host; `gloo` is TCP on loopback. The results have the same bits.
enum class Backend { automatic, gloo };

/// What a signal that stops (Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU) does to a job:
/// `end` ends it at once; `ask` has stop_requested() tell its replicas, and Ctrl-C or SIGTERM end
/// it 2 s or more after the first of them that has come to this host.
enum class OnStop { end, ask };

/// Whose prints a job's stdout has: replica 0's alone, or those of all.
enum class Prints { first, all };

/// This host among several that run one job: the same program with the same options but for these.
struct HostOptions {
  std::int64_t count = 1;    ///< hosts of the job
  std::int64_t rank = 0;     ///< this host's number, from 0
  std::string rendezvous{};  ///< "HOST:PORT": where host 0 listens and the others find it
  /// Where host 0 listens if another program already does there, tried in this order. The others
  /// try all of them in turn.
  std::vector<std::string> more_rendezvous{};
  /// What tells this job from the user's others, such as an engine's number for it; "": nothing.
  /// Launchers of another job are passed over, until they are gone.
  std::string job{};
  /// How long the launchers may take to meet: to be started, to have names and a free port, to get
  /// the secret.
  std::chrono::milliseconds meet_timeout{60'000};
  /// What else to say where the rendezvous' name is not known; "": nothing.
  std::string unknown_name_hint{};
  /// How many of the job's replicas run here. 0, then on all hosts: an even share, of which the
  /// first hosts have the remainder.
  std::int64_t replicas = 0;
  /// A file of 64 hexadecimal digits, the same on all hosts and readable by this user alone (or as
  /// a Kubernetes Secret's: comm::Secret::read()). Empty: lockstep/secret in the user's
  /// configuration folder, which host 0 makes if it is missing, and for which the others wait.
  std::filesystem::path secret_file{};
  /// The network interface for the replicas' bytes; empty: that of the way to the rendezvous.
  std::string interface {};
  /// How fast the links between hosts are: "auto" (measured when workers connect), or as "0.21 ms,
  /// 117 MB/s" (latency, bandwidth in one direction). It decides who sends what
  /// and how large buckets are, never the results.
  std::string link = "auto";
  /// Hosts may differ in LibTorch, BLAS and kind of CPU. Then results may depend on the host.
  bool allow_mixed = false;
  /// By name, what else must be the same on all hosts: a config's values, checksums of data.
  std::map<std::string, std::string> same{};
  /// Called by each launcher once all hosts have met: on host 0 first, with "", then on the others,
  /// with what it has returned there. What it throws ends the job on all hosts.
  std::function<std::string(const std::string& of_host_0)> prepare{};
};

/// Traces of what all replicas do in some steps: see watch/trace.h. Host 0's launcher calls these,
/// on the thread on which it watches its workers. What they throw is logged.
struct TraceOptions {
  /// The steps that are wanted. Asked a few times a second until the first of them has begun.
  std::function<std::optional<watch::TracedSteps>()> wanted{};
  /// Gets their trace when all replicas have done them, or have ended in one of them.
  std::function<void(const watch::Trace& trace)> take{};
};

struct LaunchOptions {
  std::int64_t replicas = 1;
  /// How many of them run at once, at most all; 0: all.
  std::int64_t workers = 0;
  LaunchMode mode = LaunchMode::processes;
  Backend backend = Backend::automatic;
  /// The name by which the function's collectives call the replicas.
  std::string axis_name = "data";
  /// Math threads of each replica; 0: the cores that the host's process may use (base/cores.h) /
  /// its replicas, at least 1, whatever the number of workers.
  std::int64_t threads_per_replica = 0;
  /// How long a replica waits for the others, when connecting and in a collective: for those of
  /// another worker with several replicas that many times as long.
  std::chrono::milliseconds timeout{60'000};
  /// After such a wait a warning on stderr says, on every host, which replicas are missing and
  /// where they were last seen; again when the time has doubled. 0: never. It counts as `timeout`
  /// does where workers have several replicas.
  std::chrono::milliseconds stall_warning{15'000};
  OnStop on_stop = OnStop::end;
  Prints prints = Prints::first;
  /// The most times that the job is started again after it has lost a replica. Processes only.
  std::int64_t max_restarts = 0;
  /// The wait before the first restart, at most a minute. It doubles with each, up to a minute.
  std::chrono::milliseconds restart_delay{1000};
  /// Called by the launcher right before each restart, with its number, from 1. Must not launch.
  /// Forked replicas see what it changes. What it throws ends launch().
  std::function<void(std::int64_t restart)> before_restart{};
  /// Called by this host's launcher once the job has ended with status 1, 2 or 3, and before a
  /// restart: with why, and what this host's replicas did last (replicas/job_failure.h).
  /// Must not launch. What it throws is logged.
  std::function<void(const JobFailure& failure)> after_failure{};
  /// Called by host 0's launcher with the text of each warning of `stall_warning`. Must not launch.
  /// What it throws is logged.
  std::function<void(const std::string& warning)> after_stall{};
  /// More than one host needs processes and Backend::automatic.
  HostOptions hosts{};
  TraceOptions trace{};  ///< none by default
};

/// Runs `replica` once a replica on this host, with the axis bound, and returns the status with
/// which the program should end:
///
///   int main() { return lockstep::launch(train, {.replicas = 4}); }
///
///   0    every replica's function has returned
///   1    a replica threw, 2 if it was a ValueError or DataError, 3 if a CommError
///   3    a process with replicas died
///   130  stopped by Ctrl-C (SIGINT), 129 by SIGHUP, 143 by SIGTERM and the other signals; with
///        OnStop::ask also if every function has then returned
///
/// - **Failures.** The last thing on stderr is the root cause: which replica, its process, its exit
///   status or signal and what it last wrote on stderr. The others end within 2 seconds. A replica
///   that ends the program (exit(), a crash) has died. Throws ValueError for options out of range,
///   and for a call while another thread is in launch().
/// - **Fewer workers.** With `workers` W < N replicas, each worker runs its shard() of them as
///   threads. One runs at a time and hands over when it waits for others; after `timeout` without
///   that, the others no longer wait for it. Results have the same bits, also on a smaller machine.
/// - **Processes** are children of this one and end with it, however it ends. They are forked if
///   this process has one thread. Otherwise the program is started again with the same arguments:
///   the new process becomes a worker in the same (n-th) call of launch(); earlier ones return 0.
/// - **Memory.** What a process with replicas frees stays with it, also if they are threads
///   (TensorMemory::prepare() in replicas/tensor_memory.h).
/// - **Limits** (ulimit) that are known beforehand to be too little are a ValueError with their
///   name and numbers: addresses (-v) and private memory (-d) for threads, BLAS and what replicas
///   share, and files (-f) for the latter. With less than libraries need to start, or a stack (-s)
///   of less than 512 KiB, the program ends before main(), with status 2. Later failures name the
///   limit.
/// - **Forks.** A process that a replica forks must end with _exit() or exec(), and must not return
///   from the function.
/// - **Output.** Each line goes out when it ends. Stdout has what worker 0's replicas print, and
///   with Prints::all what others do, each line with a prefix: "[replica 1] ", or "[worker 1] " if
///   that has several replicas. That some is left out is told on stderr. Replicas that are threads
///   of one process print as its threads do. Worker 0 writes to this process' stderr, and lines of
///   others gain a prefix: "[replica 1] " or "[worker 1] ". A print to stdout waits for its reader,
///   as that of any program: others' waits for this replica don't time out meanwhile, and a warning
///   of a stall names stdout. Nobody waits for the reader of log lines and progress: if he pauses,
///   the oldest are left out (base/output.h). Stops work all the while, but a replica that waits in
///   a print of its own saves once that is read. Unless set_quiet() is on, stderr first tells
///   replicas, workers, math threads, LibTorch, BLAS.
/// - **Stops.** With OnStop::ask, replicas that see stop_requested() save and return. If one fails
///   instead, that is the root cause. Workers are asked by the launcher alone and ignore these
///   signals, which may come to the whole process group; but for SIGXCPU, since each process has
///   its own limit. A signal that the program handles or ignores when it calls launch() is left
///   alone everywhere.
/// - **Restarts.** A job that would end with status 3, other than by a CollectiveMismatch, has lost
///   a replica. It is started again as a whole, up to `max_restarts` times, after stderr has told
///   the root cause: functions begin anew, and load what they have saved. After a stop signal
///   nothing is started again, and one during the wait ends launch() at once.
/// - **Several hosts.** `replicas` and `workers` are the job's. Launchers meet at the rendezvous
///   within hosts.meet_timeout, prove that they know the secret, and compare version, program,
///   options, LibTorch, BLAS and CPU: what differs is a ValueError on all. A failure or a stop on
///   one host ends the job on all, and each says the same root cause last. A job starts again on
///   all hosts; before_restart is called on host 0 first. Hosts that don't come within `timeout`
///   are left out: the others run the same replicas, on fewer workers. Without host 0 the job is
///   over.
/// - **Pauses.** Time in which the whole job is paused (Ctrl-Z, a freezer) is no waiting. Workers
///   that are stopped for longer than `timeout` while the launcher runs are a Timeout.
[[nodiscard]] int launch(const std::function<void()>& replica, const LaunchOptions& options = {},
                         std::source_location where = std::source_location::current());

/// Whether the launcher was asked to stop the job of this process' replicas: see OnStop::ask. Each
/// replica sees it at a moment of its own, so they must agree before they return: for example
/// `psum(stop_requested() ? 1 : 0, "data") > 0` in each step. Cheap, for any thread. False outside
/// of a launch. Another replica's end never sets it.
[[nodiscard]] bool stop_requested() noexcept;

/// Whether launch() has started the program again for this worker: what comes before is run again.
[[nodiscard]] bool is_relaunched();

/// The number of the host on which this process' replicas run; 0 outside of a launch. Any thread.
[[nodiscard]] std::int64_t launch_host() noexcept;

/// How often this process' job was started again; 0 outside of a launch. For any thread.
[[nodiscard]] std::int64_t launch_restarts() noexcept;

}  // namespace lockstep
