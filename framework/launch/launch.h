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

namespace timeline {
struct Trace;
struct TracedSteps;
}  // namespace timeline
struct JobFailure;

enum class LaunchMode { processes, threads };

[[nodiscard]] constexpr const char* name_of(LaunchMode mode) {
  return mode == LaunchMode::processes ? "processes" : "threads";
}

/// The way in which replicas exchange bytes. `automatic`: shared memory on a host, TCP between
/// hosts. `gloo`: TCP on loopback, on one host. The results have the same bits.
enum class Backend { automatic, gloo };

/// The effect on a job of a signal that stops (Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU).
/// `end`: it ends the job at once. `ask`: stop_requested() tells the replicas, and a Ctrl-C or
/// SIGTERM ends the job 2 s or more after the first of them that has come to this host.
enum class OnStop { end, ask };

/// The prints on a job's stdout: those of worker 0's replicas alone, or of all.
enum class Prints { first, all };

/// This host among several that run one job: the same program with the same options but for these.
struct HostOptions {
  std::int64_t count = 1;    ///< hosts of the job
  std::int64_t rank = 0;     ///< this host's number, from 0
  std::string rendezvous{};  ///< "HOST:PORT" at which host 0 listens
  /// More places for host 0 to listen at, tried in this order if another program already listens
  /// there. The others try all places in turn.
  std::vector<std::string> more_rendezvous{};
  /// A name that tells this job from the user's others, such as an engine's number for it; "":
  /// none. Launchers of another job are passed over, until they are gone.
  std::string job{};
  /// How long the launchers may take to meet: until all are started, have names and a free port,
  /// and get the secret.
  std::chrono::milliseconds meet_timeout{60'000};
  /// A text for the error if the rendezvous' name is not known; "": none.
  std::string unknown_name_hint{};
  /// How many of the job's replicas run here. 0 on all hosts: an even share; the first hosts have
  /// the remainder.
  std::int64_t replicas = 0;
  /// A file of 64 hexadecimal digits, the same on all hosts and readable by this user alone (or as
  /// a Kubernetes Secret's: comm::Secret::read()). Empty: lockstep/secret in the user's
  /// configuration folder; host 0 makes it if it is missing, and the others wait for it.
  std::filesystem::path secret_file{};
  /// The network interface for the replicas' bytes; empty: the one on the way to the rendezvous.
  std::string interface {};
  /// The speed of the links between hosts: "auto" (measured when workers connect), or as "0.21 ms,
  /// 117 MB/s" (latency, bandwidth in one direction). It decides the schedules of messages and the
  /// sizes of buckets, never the results.
  std::string link = "auto";
  /// Hosts may differ in program, LibTorch, BLAS and CPU. Then results may depend on the host.
  bool allow_mixed = false;
  /// More values by name that must be the same on all hosts: a config's values, checksums of data.
  std::map<std::string, std::string> same{};
  /// Called by each launcher once all hosts have met: on host 0 first, with "", then on the others,
  /// with the text that host 0's call returned. Its error ends the job on all hosts.
  std::function<std::string(const std::string& of_host_0)> prepare{};
};

/// Traces of all replicas in some steps: see timeline/trace.h. Host 0's launcher calls these
/// functions, on the thread on which it watches its workers. Their errors are logged.
struct TraceOptions {
  /// Returns the wanted steps. Called a few times a second until the first of them has begun.
  std::function<std::optional<timeline::TracedSteps>()> wanted{};
  /// Gets the trace of these steps when all replicas have done them, or have ended in one of them.
  std::function<void(const timeline::Trace& trace)> take{};
};

struct LaunchOptions {
  std::int64_t replicas = 1;
  /// How many replicas run at once, at most all; 0: all.
  std::int64_t workers = 0;
  LaunchMode mode = LaunchMode::processes;
  Backend backend = Backend::automatic;
  /// The name of the replicas' axis in the function's collectives.
  std::string axis_name = "data";
  /// Math threads of each replica; 0: the cores that the host's process may use (base/cores.h) /
  /// its replicas, at least 1, whatever the number of workers.
  std::int64_t threads_per_replica = 0;
  /// How long a replica waits for the others, when connecting and in a collective. A wait for
  /// another worker with several replicas may last that many times as long.
  std::chrono::milliseconds timeout{60'000};
  /// After a wait of this length a warning on stderr says, on every host, which replicas are
  /// missing and where they were last seen; again when the time has doubled. 0: never. Several
  /// replicas a worker multiply it, as they do `timeout`.
  std::chrono::milliseconds stall_warning{15'000};
  OnStop on_stop = OnStop::end;
  Prints prints = Prints::first;
  /// How often the job may be started again after it has lost a replica. Processes only.
  std::int64_t max_restarts = 0;
  /// The wait before the first restart, at most a minute. It doubles with each one, up to a minute.
  std::chrono::milliseconds restart_delay{1000};
  /// Called by the launcher right before each restart, with the restart's number, from 1. Must not
  /// launch. Forked replicas see its changes. Its error ends launch().
  std::function<void(std::int64_t restart)> before_restart{};
  /// Called by this host's launcher once the job has ended with status 1, 2 or 3, and before a
  /// restart: with the cause, and with the last recordings of this host's replicas
  /// (launch/job_failure.h). Must not launch. Its error is logged.
  std::function<void(const JobFailure& failure)> after_failure{};
  /// Called by host 0's launcher with the text of each warning of `stall_warning`. Must not launch.
  /// Its error is logged.
  std::function<void(const std::string& warning)> after_stall{};
  /// More than one host needs processes and Backend::automatic.
  HostOptions hosts{};
  TraceOptions trace{};  ///< none by default
};

/// Runs `replica` once for each replica on this host, with the axis bound, and returns the status
/// with which the program should end:
///
///   int main() { return lockstep::launch(train, {.replicas = 4}); }
///
///   0    every replica's function has returned
///   1    a replica threw, 2 if it was a ValueError or DataError, 3 if a CommError
///   3    a process with replicas died
///   130  stopped by Ctrl-C (SIGINT), 129 by SIGHUP, 143 by SIGTERM and the other signals; with
///        OnStop::ask also if every function has then returned
///
/// - **Failures.** The last text on stderr is the root cause: the replica, its process, its exit
///   status or signal and its own last lines on stderr. The others end within 2 seconds. A replica
///   that ends the program (exit(), a crash) has died. Throws ValueError for options out of range,
///   and for a call while another thread is in launch().
/// - **Fewer workers.** With `workers` W < N replicas, each worker runs its shard() of them as
///   threads. One runs at a time and hands over when it waits for others, who don't wait longer
///   than `timeout` for that. Results have the same bits, also on a smaller machine.
/// - **Processes** are children of this one and end with it, however it ends. They are forked if
///   this process has one thread. Otherwise the program is started again with the same arguments:
///   the new process becomes a worker in the same (n-th) call of launch(); earlier calls return 0.
/// - **Memory.** A process with replicas keeps the memory that it frees, also if they are threads
///   (TensorMemory::prepare() in maps/tensor_memory.h).
/// - **Limits** (ulimit) that are known beforehand to be too low are a ValueError with their name
///   and numbers: addresses (-v) and private memory (-d) for threads, BLAS and replicas' shared
///   memory, and files (-f) for the latter. With less than libraries need to start, or a stack (-s)
///   of less than 512 KiB, the program ends before main(), with status 2. Later failures name the
///   limit.
/// - **Forks.** A process that a replica forks must end with _exit() or exec(), and must not return
///   from the function.
/// - **Output.** Each line goes out when it ends. Stdout has the prints of worker 0's replicas, and
///   with Prints::all also those of others, each line with a prefix that names the replica, or the
///   worker if it has several: "[replica 1] ". If prints are left out, stderr says so. Stderr has
///   the lines of all workers, others' than worker 0's with such a prefix. Replicas that are
///   threads of one process print as its threads do. A print to stdout waits for its reader, as in
///   any program: meanwhile waits for this replica don't time out, and a warning of a stall names
///   stdout. Log lines and progress wait for no reader: if he pauses, the oldest are left out
///   (base/output.h). Stops work all the while, but a replica that waits in a print of its own
///   saves once that print is read. Unless set_quiet() is on, stderr first tells replicas, workers,
///   math threads, LibTorch, BLAS.
/// - **Stops.** With OnStop::ask, replicas that see stop_requested() save and return. If one fails
///   instead, its error is the root cause. Only the launcher asks workers: they ignore these
///   signals, which may come to the whole process group; not SIGXCPU, since each process has its
///   own limit. A signal that the program handles or ignores when it calls launch() is left alone
///   everywhere.
/// - **Restarts.** A job that would end with status 3, other than by a CollectiveMismatch, has lost
///   a replica. It is started again as a whole, up to `max_restarts` times, after stderr has told
///   the root cause: functions begin anew, and load what they have saved. After a stop signal
///   nothing is started again, and a signal during the wait ends launch() at once.
/// - **Several hosts.** `replicas` and `workers` are the job's. Launchers meet at the rendezvous
///   within hosts.meet_timeout, prove that they know the secret, and compare version, program,
///   options, LibTorch, BLAS and CPU: a difference is a ValueError on all. A failure or a stop on
///   one host ends the job on all, and each says the same root cause last. A job starts again on
///   all hosts; before_restart is called on host 0 first. Hosts that don't come within `timeout`
///   are left out: the others run the same replicas, on fewer workers. Without host 0 the job is
///   over.
/// - **Pauses.** Time in which the whole job is paused (Ctrl-Z, a freezer) does not count as
///   waiting. Workers that are stopped for longer than `timeout` while the launcher runs are a
///   Timeout.
[[nodiscard]] int launch(const std::function<void()>& replica, const LaunchOptions& options = {},
                         std::source_location where = std::source_location::current());

/// Returns true once the launcher was asked to stop the job of this process' replicas: see
/// OnStop::ask. Each replica sees it at a moment of its own, so they must agree before they return:
/// for example `psum(stop_requested() ? 1 : 0, "data") > 0` in each step. Cheap, for any thread.
/// False outside of a launch. Another replica's end never sets it.
[[nodiscard]] bool stop_requested() noexcept;

/// Returns true if launch() started the program anew for this worker: code before it runs again.
[[nodiscard]] bool is_relaunched();

/// Returns the number of this process' host in its job; 0 outside of a launch. For any thread.
[[nodiscard]] std::int64_t launch_host() noexcept;

/// Returns how often this process' job was started again; 0 outside of a launch. For any thread.
[[nodiscard]] std::int64_t launch_restarts() noexcept;

}  // namespace lockstep
