#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <optional>
#include <utility>

#include <unistd.h>

#include "framework/base/cores.h"
#include "framework/base/logging.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/calls/long_waits.h"
#include "framework/comm/memory_store.h"
#include "framework/launch/job_failure.h"
#include "framework/launch/prints.h"
#include "framework/launch/running_job.h"
#include "framework/launch/stop_signals.h"
#include "framework/launch/worker.h"
#include "framework/maps/thread_ends.h"
#include "framework/timeline/job_trace.h"
#include "framework/timeline/pause_watch.h"

namespace lockstep::launcher {

int launch_threads(const std::function<void()>& function, const LaunchOptions& options) {
  // Nothing can end a thread: one that still runs this long after a failure ends with the program.
  constexpr std::chrono::milliseconds kThreadGrace{1500};
  const JobPlan plan = make_plan(options, {0}, {usable_cores()});
  announce(options, plan);
  static constinit Word asked{};  // a thread that still runs may look at it later
  asked.store(0);
  const StopSignals stop(options.on_stop == OnStop::ask ? &asked : nullptr, stop_at_once);
  const ScopedValue<const Word*, std::atomic<const Word*>> replicas_see(own_job.asked_by, &asked);
  if (stop.asks()) be_warned_of_cpu_limit(options.workers * plan.math_threads);
  const auto store = std::make_shared<comm::MemoryStore>();
  const auto count = static_cast<int>(options.workers);
  const Descriptor descriptor(
      comm::HostMemory::make_memory(count, static_cast<int>(options.replicas)));
  const auto memory = std::make_shared<comm::HostMemory>(count, descriptor.get());
  const ScopedValue<const Word*, std::atomic<const Word*>> waits_see(
      Waited::held_up, &memory->call_table()->held_up());
  Mutex mutex;  // guards workers
  std::vector<std::unique_ptr<Worker>> workers(static_cast<std::size_t>(count));
  maps::FirstFailure failure(0, [&](const std::string& reason) {
    const MutexLock lock(mutex);
    store->abort(reason);
    for (const auto& worker : workers) {
      if (worker) worker->end(failure.cause()->error, reason);
    }
  });
  const auto connect = [&](std::int64_t index) {
    try {
      auto made = std::make_unique<Worker>(options, plan, index, store, memory);
      const MutexLock lock(mutex);
      workers[static_cast<std::size_t>(index)] = std::move(made);
    } catch (...) {
      failure.record(plan.layout.replicas_of_worker(index).offset);
    }
  };
  const auto run = [&](std::int64_t replica) {
    const auto worker = std::ranges::find_if(
        workers, [&](const auto& one) { return replica < one->replicas().end(); });
    const maps::ThreadEnds ends(str("replica ", replica));
    (*worker)->run(replica, function);
  };
  const LinesGoOut lines;
  RunningThreads connecting({0, count}, failure, connect);
  bool all_over = connecting.wait(kThreadGrace);
  std::optional<RunningThreads> running;
  if (!failure.happened()) {
    running.emplace(Range{0, options.replicas}, failure, run);
    bool told = false;
    calls::LongWaits waits(*memory->call_table(), {0, count}, plan.in_turns(options.stall_warning));
    timeline::PauseWatch pauses(*memory->recorder(), {0, options.replicas});
    timeline::JobTrace trace(0, {{0, options.replicas}}, *memory->recorder(),
                             trace_uses(options.trace));
    trace.set_workers({{0, ::getpid()}});
    const auto look = [&] {
      Output::of(STDOUT_FILENO).progress();
      Output::of(STDERR_FILENO).progress();
      memory->call_table()->held_up().store(wait_for_reader(std::array{::getpid()}) ? 1 : 0);
      pauses.look();
      trace.progress();
      for (const calls::Stall& stall : waits.stalls(*memory->recorder()))
        tell_stall(stall.text, options);
      stop.tell_early();
      if (stop.asked() != 0 && !std::exchange(told, true)) tell_asked(stop.asked());
      pauses.begin_wait();
    };
    all_over = running->wait(kThreadGrace, look);
    look();
    trace.end();
    trace.close();
  }
  JobFailure late{.noticed = timeline::recorder_now(),
                  .replicas = timeline::read_replicas(*memory->recorder())};
  int status = 0;
  try {
    failure.rethrow();
  } catch (const Error& error) {
    std::cout.flush();
    std::fflush(stdout);
    status = exit_status(error);
    late.verdict = maps::typed_text(std::current_exception());
    tell_failure(late, options);
    log_error(late.verdict);
  }
  if (!all_over) {
    UnreadOutput::finish(status);
    ::_exit(status);
  }
  if (status == 0 && stop.asked() != 0) {
    leave_progress_line();
    log_error(stopped_text(stop.asked()));
    status = status_of_stop(stop.asked());
  }
  return status;
}

}  // namespace lockstep::launcher
