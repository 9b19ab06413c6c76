#include "framework/replicas/launch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/non_copyable.h"
#include "framework/base/pages.h"
#include "framework/base/process.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/gloo/gloo_communicator.h"
#include "framework/comm/host_members.h"
#include "framework/comm/link_speed.h"
#include "framework/comm/network/tcp_communicator.h"
#include "framework/comm/run_lock.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/comm/shared/shared_communicator.h"
#include "framework/comm/store.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/hosts.h"
#include "framework/replicas/job_layout.h"
#include "framework/replicas/kept_threads.h"
#include "framework/replicas/machine.h"
#include "framework/replicas/process_memory.h"
#include "framework/replicas/replica_threads.h"
#include "framework/replicas/stall_watch.h"
#include "framework/replicas/stop_signals.h"
#include "framework/replicas/supervisor.h"
#include "framework/replicas/thread_ends.h"
#include "framework/replicas/worker_process.h"

namespace lockstep {
namespace {

using ReplicaFunction = std::function<void()>;

// Where the signal by which this process' replicas are asked to end is stored.
std::atomic<const Word*> asked_by{nullptr};
// How often these replicas' job was started again.
std::atomic<std::int64_t> own_restarts{0};
// The host that they are on.
std::atomic<std::int64_t> own_host{0};

constexpr std::chrono::milliseconds kLongestDelay{60'000};

// What the options say of links; nothing: they are to be measured.
std::optional<comm::LinkSpeed> link_of(const HostOptions& hosts) {
  if (hosts.link == "auto") return std::nullopt;
  return comm::LinkSpeed::parse(hosts.link);
}

void check_options(const LaunchOptions& options) {
  require(options.replicas >= 1, "launch: replicas is ", options.replicas,
          "; it must be at least 1");
  require(options.workers >= 0 && options.workers <= options.replicas, "launch: workers is ",
          options.workers, " for ", counted(options.replicas, "replica"),
          "; it must be from 1 to that, or 0 for as many");
  require(!options.axis_name.empty(), "launch: axis_name must not be empty");
  require(options.threads_per_replica >= 0, "launch: threads_per_replica is ",
          options.threads_per_replica, "; it must not be negative");
  require(options.timeout.count() > 0, "launch: timeout is ", options.timeout.count(),
          " ms; it must be positive");
  require(options.stall_warning.count() >= 0, "launch: stall_warning is ",
          options.stall_warning.count(), " ms; it must not be negative");
  require(options.max_restarts >= 0, "launch: max_restarts is ", options.max_restarts,
          "; it must not be negative");
  require(options.max_restarts == 0 || options.mode == LaunchMode::processes,
          "launch: max_restarts is ", options.max_restarts,
          " with LaunchMode::threads; it must be 0, as a thread that crashes ends the program");
  require(options.restart_delay.count() >= 0 && options.restart_delay <= kLongestDelay,
          "launch: restart_delay is ", options.restart_delay.count(), " ms; it must be from 0 to ",
          kLongestDelay.count());
  const HostOptions& hosts = options.hosts;
  require(hosts.count >= 1, "launch: hosts.count is ", hosts.count, "; it must be at least 1");
  require(hosts.rank >= 0 && hosts.rank < hosts.count, "launch: hosts.rank is ", hosts.rank,
          "; it must be from 0 to ", hosts.count - 1);
  (void)link_of(hosts);
  if (hosts.count == 1) return;
  require(!hosts.rendezvous.empty(), "launch: ", hosts.count,
          " hosts need a rendezvous, HOST:PORT");
  const std::int64_t workers = options.workers == 0 ? options.replicas : options.workers;
  require(workers >= hosts.count, "launch: ", counted(options.replicas, "replica"), " on ",
          counted(workers, "worker"), " and ", hosts.count, " hosts; each host has one at least");
  require(hosts.replicas >= 0 && hosts.replicas <= options.replicas, "launch: hosts.replicas is ",
          hosts.replicas, " of ", options.replicas, "; it must be from 1 to that, or 0");
  require(options.mode == LaunchMode::processes,
          "launch: several hosts need processes, not threads");
  require(options.backend == Backend::automatic,
          "launch: several hosts need the backend auto: Gloo's ports can't keep strangers out");
}

// A job on this host alone.
replicas::JobPlan own_plan(const LaunchOptions& options) {
  return {replicas::JobLayout(std::span(&options.replicas, 1), options.workers),
          replicas::math_threads(options.threads_per_replica, options.replicas)};
}

void announce(const LaunchOptions& options, const replicas::JobPlan& plan) {
  const replicas::Blas library = replicas::blas();
  const char* const how = name_of(options.mode);
  std::string where;
  if (plan.network) {
    std::vector<std::int64_t> each;
    for (const auto& host : plan.layout.hosts()) each.push_back(host.replicas.size);
    where = str(" on ", each.size(), " hosts (", join(each, " + "), ")");
  }
  log_info(str(counted(options.replicas, "replica"), where,
               options.workers == options.replicas
                   ? str(" as ", how)
                   : str(" on ", counted(options.workers, "worker"), " (", how, ")"),
               ", ", counted(plan.math_threads, "math thread"), " each; ",
               replicas::libtorch_version(), ", ", library.name,
               plan.network ? str("; this host's address is ", plan.network->address) : ""));
  if (!library.warning.empty()) log_warning(library.warning);
}

// What a time that a replica waits is where it waits for other workers' replicas, which run one
// after another.
std::chrono::milliseconds in_turns(std::chrono::milliseconds time, const replicas::JobPlan& plan) {
  return plan.layout.workers() == 1 ? time : time * plan.layout.most_replicas_a_worker();
}

std::chrono::milliseconds patience_of(const LaunchOptions& options, const replicas::JobPlan& plan) {
  return in_turns(options.timeout, plan);
}

std::vector<int> hosts_of_workers(const replicas::JobLayout& layout) {
  std::vector<int> hosts;
  for (std::int64_t worker = 0; worker < layout.workers(); ++worker) {
    hosts.push_back(static_cast<int>(layout.host_of_worker(worker)));
  }
  return hosts;
}

std::shared_ptr<comm::Communicator> make_communicator(
    const LaunchOptions& options, const replicas::JobPlan& plan, std::int64_t index,
    const std::shared_ptr<comm::Store>& store, const std::shared_ptr<comm::HostMemory>& memory) {
  // LocalReplicas::verdict ends waits first, with the names of the absent: this limit is later.
  constexpr std::chrono::seconds kLater{10};
  const auto rank = static_cast<int>(index);
  const auto size = static_cast<int>(plan.layout.workers());
  comm::ConnectOptions how;
  how.timeout = patience_of(options, plan) + kLater;
  how.connect_timeout = options.timeout;
  if (options.backend == Backend::gloo) return comm::connect_gloo(store, rank, size, how);
  if (!plan.network) return comm::connect_shared(memory, store, rank, size, how);
  const Range here = plan.layout.hosts()[plan.layout.host_of_worker(index)].workers;
  auto local =
      comm::connect_shared(memory, std::make_shared<comm::PrefixedStore>(store, "local/"),
                           rank - static_cast<int>(here.offset), static_cast<int>(here.size), how);
  const comm::NetworkOptions network{plan.network->address, plan.network->secret,
                                     plan.network->job};
  const std::vector<int> host_of = hosts_of_workers(plan.layout);
  auto world = comm::join_hosts(std::move(local),
                                comm::connect_tcp(store, rank, size, network, how), host_of);
  comm::set_up_links(*world, host_of, link_of(options.hosts));
  return world;
}

// One of the workers that run the job's replicas, connected with the others. Its replicas are
// threads of which one runs at a time and hands over where it waits for others (RunLock). A single
// replica runs without one. While the object lives, the board shows how its replicas ended.
class Worker {
 public:
  // Connects it. All workers meet in `store` and share `memory`, whose members they are. `report`
  // is where processes that replicas have forked send_report(). Throws CommError where others do
  // not come.
  Worker(const LaunchOptions& options, const replicas::JobPlan& plan, std::int64_t index,
         const std::shared_ptr<comm::Store>& store, const std::shared_ptr<comm::HostMemory>& memory,
         int report)
      : replicas_(plan.layout.replicas_of_worker(index)),
        report_(report),
        math_threads_(plan.math_threads),
        run_lock_(options.timeout),
        communicator_(make_communicator(options, plan, index, store, memory)),
        local_(std::make_shared<groups::LocalReplicas>(static_cast<int>(index), communicator_,
                                                       memory->board())) {
    AxisLevel level{{{options.axis_name, options.replicas}}, 0, replicas::kJobCall};
    for (std::int64_t worker = 0; worker < plan.layout.workers(); ++worker) {
      const auto count = static_cast<std::size_t>(plan.layout.replicas_of_worker(worker).size);
      level.workers.insert(level.workers.end(), count, static_cast<int>(worker));
    }
    for (std::int64_t local = 0; local < replicas_.size; ++local) {
      level.rank = replicas_.offset + local;
      places_.push_back(std::make_unique<Environment>(local_, std::vector<AxisLevel>{level},
                                                      cancellation_, patience_of(options, plan)));
      if (replicas_.size > 1) places_.back()->member().run_lock = &run_lock_;
    }
  }

  // The replicas of the job that this worker runs.
  [[nodiscard]] const Range& replicas() const noexcept { return replicas_; }

  // Runs `function` as `replica`, one of its own, in the calling thread, with the axis bound.
  void run(std::int64_t replica, const ReplicaFunction& function) {
    Environment& place = *places_[static_cast<std::size_t>(replica - replicas_.offset)];
    const at::ThreadLocalStateGuard same_state(callers_state_);
    replicas::set_math_threads(math_threads_);
    const comm::RunLockScope running(replicas_.size > 1 ? &run_lock_ : nullptr);
    const auto tell = [&](const std::string& text) {
      replicas::send_report(report_, {replica, ErrorKind::error, "Error", text});
    };
    replicas::run_as(
        place, [&] { replicas::run_in_one_process(str("replica ", replica), function, tell); });
  }

  // Ends what its replicas wait for because one of the job's has failed: with `error` if that is a
  // CollectiveMismatch, since all are out of step then, otherwise with Aborted(reason). Any thread.
  void end(const std::exception_ptr& error, const std::string& reason) {
    const bool is_mismatch = error_kind(error) == ErrorKind::mismatch;
    is_mismatch ? cancellation_->cancel(error) : cancellation_->cancel(reason);
    local_->wake_all();
    communicator_->abort(reason);
  }

  // Waits for the other workers, so that nobody closes connections that another still needs.
  void part() { communicator_->barrier(); }

 private:
  Range replicas_;
  int report_;
  std::int64_t math_threads_;
  comm::RunLock run_lock_;
  at::ThreadLocalState callers_state_;
  std::shared_ptr<comm::Communicator> communicator_;
  std::shared_ptr<groups::LocalReplicas> local_;
  std::shared_ptr<comm::Cancellation> cancellation_ = std::make_shared<comm::Cancellation>();
  std::vector<std::unique_ptr<Environment>> places_;  // of its replicas, in order
};

// Threads of replicas or workers. All are over when it is gone.
class RunningThreads {
 public:
  RunningThreads(const Range& indices, replicas::FirstFailure& failure,
                 const std::function<void(std::int64_t)>& body)
      : failure_(failure), running_(indices.size) {
    const auto run = [this, body](std::int64_t index) {
      try {
        body(index);
      } catch (...) {
        failure_.record(index);
      }
      end(1);
    };
    replicas::add_threads(threads_, indices.size, failure, run, indices.offset);
    end(indices.size - static_cast<std::int64_t>(threads_.size()));
  }
  ~RunningThreads() {
    for (std::thread& thread : threads_) thread.join();
  }

  // Waits until all are over, and calls `look` now and then. Once one has failed it waits for
  // `grace` at most, and only until it is `enough`. Returns whether all are over.
  bool wait(
      std::chrono::milliseconds grace, const std::function<void()>& look = {},
      const std::function<bool()>& enough = [] { return false; }) {
    std::unique_lock lock(mutex_);
    const auto over = [&] { return running_ == 0 || failure_.happened(); };
    while (look && !changed_.wait_for(lock, kLookAround, over)) {
      lock.unlock();
      look();
      lock.lock();
    }
    changed_.wait(lock, over);
    changed_.wait_for(lock, grace, [&] { return running_ == 0 || enough(); });
    return running_ == 0;
  }

 private:
  static constexpr std::chrono::milliseconds kLookAround{100};

  void end(std::int64_t count) {
    const std::lock_guard lock(mutex_);
    running_ -= count;
    changed_.notify_all();
  }

  replicas::FirstFailure& failure_;
  std::mutex mutex_;  // guards running_
  std::condition_variable changed_;
  std::int64_t running_;
  std::vector<std::thread> threads_;
};

// After a replica has failed because of something else, the replicas of its process have this long
// to fail with the root cause. The supervisor waits for that, too.
constexpr std::chrono::milliseconds kReplicasGrace{200};

replicas::Report report_of(const replicas::FirstFailure::Cause& cause) {
  try {
    std::rethrow_exception(cause.error);
  } catch (const Error& error) {
    return {cause.replica, error.kind(), error.type(), replicas::text_of(error)};
  } catch (const std::exception& error) {
    return {cause.replica, ErrorKind::error, "an exception", replicas::text_of(error)};
  } catch (...) {
    return {cause.replica, ErrorKind::error, "an exception", "no std::exception"};
  }
}

[[noreturn]] void run_as_process(const ReplicaFunction& function, const LaunchOptions& options,
                                 const std::string& where, const replicas::WorkerPlace& place) {
  // Kept to the end: the launcher takes its closing for this process' end.
  const auto store = std::make_shared<comm::SocketStore>(place.store);
  std::shared_ptr<comm::HostMemory> memory;
  std::unique_ptr<Worker> worker;
  replicas::FirstFailure failure(0, [&](const std::string& reason) {
    if (worker) worker->end(failure.cause()->error, reason);
  });
  std::optional<RunningThreads> threads;
  std::optional<replicas::StopSignals> stop;
  bool all_over = true;
  std::int64_t first = 0;  // of its replicas
  try {
    // A restart without some of its hosts has fewer workers.
    require(place.replicas == options.replicas &&
                (place.workers == options.workers || place.restart > 0),
            "launch: the program asked for ", counted(place.replicas, "replica"), " on ",
            counted(place.workers, "worker"), ", and started anew for ", options.replicas, " on ",
            options.workers);
    require(place.call.where == where, "launch: the program called it at ", place.call.where,
            ", and started anew at ", where);
    memory = std::make_shared<comm::HostMemory>(static_cast<int>(place.workers), place.memory);
    asked_by = &memory->stop_signal();
    // Of what asks, this process sees the end of its own processor time alone.
    if (options.on_stop == OnStop::ask) stop.emplace(&memory->stop_signal());
    own_restarts = place.restart;
    const auto plan = replicas::JobPlan::parse(store->get(replicas::kPlanKey, options.timeout));
    if (stop) replicas::be_warned_of_cpu_limit(plan.math_threads);  // one replica runs at a time
    own_host = static_cast<std::int64_t>(plan.layout.host_of_worker(place.index));
    first = plan.layout.replicas_of_worker(place.index).offset;
    worker = std::make_unique<Worker>(options, plan, place.index, store, memory, place.report);
    if (worker->replicas().size == 1) {
      worker->run(worker->replicas().offset, function);
    } else {
      threads.emplace(worker->replicas(), failure, [&](std::int64_t replica) {
        const replicas::ThreadEnds ends(str("replica ", replica));
        worker->run(replica, function);
      });
      all_over = threads->wait(kReplicasGrace, {}, [&] { return failure.cause()->doubt == 0; });
    }
    if (!failure.happened()) worker->part();
  } catch (...) {
    failure.record(first);
  }
  const auto cause = failure.cause();
  const replicas::Report report = cause ? report_of(*cause) : replicas::Report{};
  std::cout.flush();
  std::fflush(all_over ? nullptr : stdout);  // another may be held by a thread that still runs
  replicas::send_report(place.report, report);
  // Destructors of statics are the launcher's: a forked child must not run them a second time.
  ::_exit(report.status());
}

// Runs the job once: at first, or as its restart number `restart`. `hosts`: see supervise().
replicas::JobEnd run_processes(const ReplicaFunction& function, const LaunchOptions& options,
                               const replicas::JobPlan& plan, replicas::Hosts* hosts,
                               const replicas::LaunchCall& call, std::int64_t restart) {
  const auto count = static_cast<int>(plan.layout.workers());
  const Range here = plan.layout.hosts()[hosts != nullptr ? hosts->own() : 0].workers;
  const Descriptor memory(comm::HostMemory::make_memory(count));
  if (hosts != nullptr) {
    comm::HostMemory(count, memory.get())
        .board()
        ->set_local(static_cast<int>(here.offset), static_cast<int>(here.size),
                    static_cast<int>(options.replicas), hosts_of_workers(plan.layout));
  }
  comm::StoreServer store;
  store.set(replicas::kPlanKey, plan.text());
  if (hosts != nullptr) hosts->serve(store);
  std::vector<replicas::WorkerProcess> workers;
  const replicas::StopsHeld held;
  try {
    for (std::int64_t index = here.offset; index < here.end(); ++index) {
      const replicas::WorkerPlace place{call,    index,       count, options.replicas,
                                        restart, memory.get()};
      workers.push_back(replicas::start_worker(
          place, plan.layout.replicas_of_worker(index), /*is_first=*/index == here.offset, workers,
          held, options.on_stop == OnStop::ask, [&](const replicas::WorkerPlace& its) {
            if (hosts != nullptr) hosts->forget();
            run_as_process(function, options, call.where, its);
          }));
    }
  } catch (...) {
    for (const replicas::WorkerProcess& started : workers) {
      ::kill(started.pid, SIGKILL);
      ::waitpid(started.pid, nullptr, 0);
    }
    throw;
  }
  const auto shared = std::make_shared<comm::HostMemory>(count, memory.get());
  const bool asks = options.on_stop == OnStop::ask;
  const replicas::StopSignals stop(asks ? &shared->stop_signal() : nullptr);
  held.release();
  if (hosts != nullptr) hosts->share(*shared->board());
  return replicas::supervise(std::move(workers), *shared->board(),
                             {patience_of(options, plan), in_turns(options.stall_warning, plan)},
                             stop, store, hosts, restart < options.max_restarts);
}

// Waits before restart number `restart`. Returns the signal that ends the wait and the job, or 0.
int wait_to_restart(const LaunchOptions& options, std::int64_t restart) {
  std::chrono::milliseconds delay = options.restart_delay;
  for (std::int64_t i = 1; i < restart && delay.count() > 0 && delay < kLongestDelay; ++i) {
    delay = std::min(2 * delay, kLongestDelay);
  }
  const replicas::StopSignals stop;
  log_warning(str("starting again in ", static_cast<double>(delay.count()) / 1000, " s (restart ",
                  restart, " of ", options.max_restarts, ")"));
  stop.wait(delay);
  if (stop.signal() != 0) log_error(replicas::stopped_text(stop.signal()));
  return stop.signal();
}

int launch_processes(const ReplicaFunction& function, const LaunchOptions& options,
                     const replicas::LaunchCall& call) {
  const auto& inherited = replicas::inherited_place();
  if (inherited && inherited->call.number == call.number) {
    run_as_process(function, options, call.where, *inherited);
  }
  // While no replica runs; otherwise there are StopSignals.
  const replicas::StopHandler ends_the_program(replicas::stop_at_once);
  std::optional<replicas::Hosts> hosts;
  if (options.hosts.count > 1) {
    const replicas::StopSignals stop;
    hosts.emplace(options, stop);
  }
  replicas::Hosts* const others = hosts ? &*hosts : nullptr;
  replicas::JobPlan plan = hosts ? hosts->plan() : own_plan(options);
  announce(options, plan);
  const replicas::ChildrenToWaitFor their_ends_are_seen;
  replicas::JobEnd end = run_processes(function, options, plan, others, call, 0);
  for (std::int64_t restart = 1; end.starts_again; ++restart) {
    if (const int signal = wait_to_restart(options, restart)) {
      return replicas::status_of_stop(signal);
    }
    const auto prepare = [&] {
      if (options.before_restart) options.before_restart(restart);
      replicas::end_kept_threads();  // of maps in before_restart
    };
    if (others != nullptr) {
      const replicas::StopSignals stop;
      others->begin_again(options.timeout, prepare, stop);
      plan = others->plan();
    } else {
      prepare();
    }
    end = run_processes(function, options, plan, others, call, restart);
  }
  return end.status;
}

// While this lives, replicas run as threads, and signals end the program or ask them to end.
class ThreadsStop : private NonCopyable {
 public:
  // `threads` are at work.
  ThreadsStop(OnStop on_stop, std::int64_t threads)
      : signals_(fresh_word(on_stop), replicas::stop_at_once) {
    asked_by = &asked_;
    if (signals_.asks()) replicas::be_warned_of_cpu_limit(threads);
  }
  ~ThreadsStop() { asked_by = nullptr; }

  [[nodiscard]] const replicas::StopSignals& signals() const { return signals_; }

 private:
  static Word* fresh_word(OnStop on_stop) {
    asked_.store(0);
    return on_stop == OnStop::end ? nullptr : &asked_;
  }

  static inline constinit Word asked_{};
  replicas::StopSignals signals_;
};

// A thread cannot be ended from outside: what still runs this long after a failure, outside of any
// collective, ends with the program.
constexpr std::chrono::milliseconds kThreadGrace{1500};

int launch_threads(const ReplicaFunction& function, const LaunchOptions& options) {
  const replicas::JobPlan plan = own_plan(options);
  announce(options, plan);
  const ThreadsStop handler(options.on_stop, options.workers * plan.math_threads);
  const replicas::StopSignals& stop = handler.signals();
  const auto store = std::make_shared<comm::MemoryStore>();
  const auto count = static_cast<int>(options.workers);
  const Descriptor descriptor(comm::HostMemory::make_memory(count));
  const auto memory = std::make_shared<comm::HostMemory>(count, descriptor.get());
  auto reports = replicas::make_pipe();  // of processes that replicas have forked
  std::string reported;                  // what came in it
  std::mutex mutex;                      // guards workers
  std::vector<std::unique_ptr<Worker>> workers(static_cast<std::size_t>(count));
  replicas::FirstFailure failure(0, [&](const std::string& reason) {
    const std::lock_guard lock(mutex);
    store->abort(reason);
    for (const auto& worker : workers) {
      if (worker) worker->end(failure.cause()->error, reason);
    }
  });
  const auto connect = [&](std::int64_t index) {
    try {
      auto made =
          std::make_unique<Worker>(options, plan, index, store, memory, reports.second.get());
      const std::lock_guard lock(mutex);
      workers[static_cast<std::size_t>(index)] = std::move(made);
    } catch (...) {
      failure.record(plan.layout.replicas_of_worker(index).offset);
    }
  };
  const auto run = [&](std::int64_t replica) {
    const auto worker = std::ranges::find_if(workers, [&](const auto& one) {
      return replica < one->replicas().offset + one->replicas().size;
    });
    const replicas::ThreadEnds ends(str("replica ", replica));
    (*worker)->run(replica, function);
  };
  RunningThreads connecting({0, count}, failure, connect);
  bool all_over = connecting.wait(kThreadGrace);
  std::optional<RunningThreads> running;
  if (!failure.happened()) {
    running.emplace(Range{0, options.replicas}, failure, run);
    bool told = false;
    replicas::StallWatch stalls(*memory->board(), {0, count},
                                in_turns(options.stall_warning, plan));
    const auto look = [&] {
      for (const replicas::Stall& stall : stalls.look()) log_warning(stall.text);
      stop.tell_early();
      if (stop.asked() != 0 && !std::exchange(told, true)) replicas::tell_asked(stop.asked());
      const auto report = replicas::read_report(reports.first, reported);
      if (report) failure.record(report->replica, traits_of(report->kind).make(report->message));
    };
    all_over = running->wait(kThreadGrace, look);
    look();
  }
  int status = 0;
  try {
    failure.rethrow();
  } catch (const Error& error) {
    std::cout.flush();
    std::fflush(stdout);
    log_error(replicas::typed_text(std::current_exception()));
    status = exit_status(error);
  }
  if (!all_over) ::_exit(status);
  if (status == 0 && stop.asked() != 0) {
    replicas::leave_progress_line();
    log_error(replicas::stopped_text(stop.asked()));
    status = replicas::status_of_stop(stop.asked());
  }
  return status;
}

}  // namespace

bool stop_requested() noexcept {
  const Word* const signal = asked_by;
  return signal != nullptr && signal->load() != 0;
}

bool is_relaunched() {
  return replicas::inherited_place().has_value();
}

std::int64_t launch_host() noexcept {
  return own_host;
}

std::int64_t launch_restarts() noexcept {
  return own_restarts;
}

int launch(const std::function<void()>& replica, const LaunchOptions& options,
           std::source_location where) {
  check_options(options);
  prepare_process();
  keep_freed_memory();
  if (current_environment() != nullptr) {
    throw ValueError("launch: called inside a replica");
  }
  if (refusal_here != nullptr) throw_refused("launch");
  // There is one signal handler for Ctrl-C, and one order of calls in a program that starts anew.
  static std::mutex under_way;  // guards calls
  const std::unique_lock only_one(under_way, std::try_to_lock);
  require(only_one.owns_lock(),
          "launch: another thread of this program is in it; a process runs one job at a time");
  // Refused calls do not count: those inside replicas are not made again by a program started anew.
  static std::int64_t calls = 0;
  const replicas::LaunchCall call{calls++, text_of(where)};
  const auto& inherited = replicas::inherited_place();
  if (inherited && inherited->call.number > call.number) return 0;
  replicas::end_kept_threads();  // a process with threads can't be forked
  LaunchOptions complete = options;
  if (complete.workers == 0) complete.workers = complete.replicas;
  require_stack();
  replicas::prepare_memory(complete);
  try {
    return options.mode == LaunchMode::processes ? launch_processes(replica, complete, call)
                                                 : launch_threads(replica, complete);
  } catch (const replicas::Stopped& stopped) {  // while hosts met
    replicas::leave_progress_line();
    log_error(stopped.what());
    return replicas::status_of_stop(stopped.signal());
  }
}

}  // namespace lockstep
