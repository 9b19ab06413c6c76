#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <optional>
#include <utility>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/logging.h"
#include "framework/base/output.h"
#include "framework/base/poll_set.h"
#include "framework/base/socket.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/comm/socket_store.h"
#include "framework/launch/host_meeting.h"
#include "framework/launch/prints.h"
#include "framework/launch/stop_signals.h"
#include "framework/launch/supervisor.h"
#include "framework/launch/worker.h"
#include "framework/maps/kept_threads.h"
#include "framework/maps/thread_ends.h"

namespace lockstep::launcher {
namespace {

// After a replica has failed as a consequence, the replicas of its process have this long to fail
// with the root cause. The supervisor waits longer.
constexpr std::chrono::milliseconds kReplicasGrace{200};

Report report_of(const maps::FirstFailure::Cause& cause) {
  try {
    std::rethrow_exception(cause.error);
  } catch (const Error& error) {
    return {cause.replica, error.kind(), error.type(), maps::text_of(error)};
  } catch (const std::exception& error) {
    return {cause.replica, ErrorKind::error, "an exception", maps::text_of(error)};
  } catch (...) {
    return {cause.replica, ErrorKind::error, "an exception", "no std::exception"};
  }
}

[[noreturn]] void run_as_process(const std::function<void()>& function,
                                 const LaunchOptions& options, const std::string& where,
                                 const WorkerPlace& place) {
  const JobPlan& plan = place.plan;
  const auto& own_host = plan.layout.hosts()[plan.layout.host_of_worker(place.index)];
  // The store stays open to the end: the launcher takes its closing for this process' end.
  const auto store =
      std::make_shared<comm::SocketStore>(Descriptor(place.store), own_host.workers.size);
  // The launcher always reads stderr. Worker 0 has the launcher's own stdout.
  UnreadOutput(false).finish(0);
  if (place.index == 0) Output::of(STDOUT_FILENO).begin();
  std::shared_ptr<comm::HostMemory> memory;
  std::unique_ptr<Worker> worker;
  maps::FirstFailure failure(0, [&](const std::string& reason) {
    if (worker) worker->end(failure.cause()->error, reason);
  });
  std::optional<RunningThreads> threads;
  std::optional<StopSignals> stop;
  bool all_over = true;
  const LinesGoOut lines;
  try {
    // A restart without some of its hosts has fewer workers.
    require(plan.layout.replicas() == options.replicas &&
                (plan.layout.workers() == options.workers || place.restart > 0),
            "launch: the program asked for ", counted(plan.layout.replicas(), "replica"), " on ",
            counted(plan.layout.workers(), "worker"), ", and started anew for ", options.replicas,
            " on ", options.workers);
    require(place.call.where == where, "launch: the program called it at ", place.call.where,
            ", and started anew at ", where);
    memory =
        std::make_shared<comm::HostMemory>(static_cast<int>(plan.layout.workers()), place.memory);
    own_job.asked_by = &memory->stop_signal();
    Waited::held_up = &memory->call_table()->held_up();
    // Stop signals ask the launcher; this process sees only the end of its own processor time.
    if (options.on_stop == OnStop::ask) stop.emplace(&memory->stop_signal());
    own_job.restarts = place.restart;
    if (stop) be_warned_of_cpu_limit(plan.math_threads);  // one replica runs at a time
    own_job.host = static_cast<std::int64_t>(plan.layout.host_of_worker(place.index));
    worker = std::make_unique<Worker>(options, plan, place.index, store, memory);
    if (worker->replicas().size == 1) {
      worker->run(worker->replicas().offset, function);
    } else {
      threads.emplace(worker->replicas(), failure, [&](std::int64_t replica) {
        const maps::ThreadEnds ends(str("replica ", replica));
        worker->run(replica, function);
      });
      all_over = threads->wait(kReplicasGrace, {}, [&] { return failure.cause()->doubt == 0; });
    }
    if (!failure.happened()) worker->part();
  } catch (...) {
    failure.record(plan.layout.replicas_of_worker(place.index).offset);
  }
  const auto cause = failure.cause();
  const Report report = cause ? report_of(*cause) : Report{};
  std::cout.flush();
  std::fflush(all_over ? nullptr : stdout);  // a thread that still runs may hold another
  send_report(place.report, report);
  if (place.index == 0) Output::of(STDOUT_FILENO).finish(stop_requested);
  // Destructors of statics are the launcher's: a forked child must not run them a second time.
  ::_exit(report.status());
}

// Runs the job once, as restart number `restart`; 0: the first run.
Ending run_processes(const std::function<void()>& function, const LaunchOptions& options,
                     Hosts& hosts, const LaunchCall& call, std::int64_t restart) {
  const JobPlan& plan = hosts.plan;
  const auto count = static_cast<int>(plan.layout.workers());
  const Range here = plan.layout.hosts()[hosts.links.own()].workers;
  const bool asks = options.on_stop == OnStop::ask;
  const Descriptor memory(comm::HostMemory::make_memory(count, static_cast<int>(options.replicas)));
  if (hosts.links.hosts() > 1) {
    comm::HostMemory(count, memory.get())
        .call_table()
        ->set_local(static_cast<int>(here.offset), static_cast<int>(here.size),
                    static_cast<int>(options.replicas), plan.layout.hosts_of_workers());
  }
  std::vector<WorkerProcess> workers;
  const StopsHeld held;
  try {
    for (std::int64_t index = here.offset; index < here.end(); ++index) {
      workers.push_back(start_worker({call, plan, index, restart, memory.get()}, workers, held,
                                     asks, [&](const WorkerPlace& its) {
                                       hosts.links.peers().clear();  // the launcher keeps the links
                                       run_as_process(function, options, call.where, its);
                                     }));
    }
  } catch (...) {
    for (const WorkerProcess& started : workers) {
      ::kill(started.pid, SIGKILL);
      ::waitpid(started.pid, nullptr, 0);
    }
    throw;
  }
  const auto shared = std::make_shared<comm::HostMemory>(count, memory.get());
  const StopSignals stop(asks ? &shared->stop_signal() : nullptr);
  held.release();
  return supervise(std::move(workers), *shared->call_table(), *shared->recorder(), hosts, options,
                   stop, restart);
}

// Waits before restart number `restart`. Returns the signal that ends the wait and the job, or 0.
int wait_to_restart(const LaunchOptions& options, std::int64_t restart,
                    std::chrono::milliseconds delay) {
  const StopSignals stop;
  log_warning(str("starting again in ", static_cast<double>(delay.count()) / 1000, " s (restart ",
                  restart, " of ", options.max_restarts, ")"));
  wait_for({stop.descriptor(), POLLIN, 0}, delay);
  if (stop.signal() != 0) log_error(stopped_text(stop.signal()));
  return stop.signal();
}

}  // namespace

int launch_processes(const std::function<void()>& function, const LaunchOptions& options,
                     const LaunchCall& call) {
  const auto& inherited = inherited_place();
  if (inherited && inherited->call.number == call.number) {
    // An unread message would cut off this process' own report at its end.
    (void)receive_message(inherited->report, MSG_DONTWAIT);
    run_as_process(function, options, call.where, *inherited);
  }
  // Handles stop signals while no replica runs; StopSignals do otherwise.
  const StopHandler ends_the_program(stop_at_once);
  Hosts hosts = meet_hosts(options);
  announce(options, hosts.plan);
  const ChildrenToWaitFor their_ends_are_seen;
  Ending end = run_processes(function, options, hosts, call, 0);
  auto delay = options.restart_delay;
  for (std::int64_t restart = 1; end.is_lost; ++restart) {
    if (const int signal = wait_to_restart(options, restart, delay)) return status_of_stop(signal);
    delay = std::min(2 * delay, kLongestDelay);
    meet_again(hosts, options, [&] {
      if (options.before_restart) options.before_restart(restart);
      maps::end_kept_threads();  // of maps in before_restart
    });
    end = run_processes(function, options, hosts, call, restart);
  }
  return end.status;
}

}  // namespace lockstep::launcher
