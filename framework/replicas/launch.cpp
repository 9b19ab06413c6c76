#include "framework/replicas/launch.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/process.h"
#include "framework/base/text.h"
#include "framework/comm/board.h"
#include "framework/comm/gloo_communicator.h"
#include "framework/comm/host_memory.h"
#include "framework/comm/shared_communicator.h"
#include "framework/comm/socket_store.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/job.h"
#include "framework/replicas/machine.h"
#include "framework/replicas/replica_process.h"
#include "framework/replicas/supervisor.h"
#include "framework/replicas/team.h"

namespace lockstep {
namespace {

using ReplicaFunction = std::function<void()>;

void check_options(const LaunchOptions& options) {
  if (options.replicas < 1) {
    throw ValueError(str("launch: replicas is ", options.replicas, "; it must be at least 1"));
  }
  if (options.axis_name.empty()) throw ValueError("launch: axis_name must not be empty");
  if (options.threads_per_replica < 0) {
    throw ValueError(str("launch: threads_per_replica is ", options.threads_per_replica,
                         "; it must not be negative"));
  }
  if (options.timeout.count() <= 0) {
    throw ValueError(
        str("launch: timeout is ", options.timeout.count(), " ms; it must be positive"));
  }
}

void announce(const LaunchOptions& options) {
  const std::int64_t threads = math_threads(options.threads_per_replica, options.replicas);
  const Blas library = blas();
  log_info(str(options.replicas, options.replicas == 1 ? " replica" : " replicas", " as ",
               options.mode == LaunchMode::processes ? "processes" : "threads", ", ", threads,
               threads == 1 ? " math thread" : " math threads", " each; ", libtorch_version(), ", ",
               library.name));
  if (!library.warning.empty()) log_warning(library.warning);
}

// A replica's life, in whichever thread or process it is: meet the others, run, part together. Its
// environment is left in `place`: how it ended is on the board while that is there.
void run_replica(const ReplicaFunction& function, const LaunchOptions& options, std::int64_t index,
                 const std::shared_ptr<Store>& store, const std::shared_ptr<HostMemory>& memory,
                 std::unique_ptr<Environment>& place,
                 const std::function<void(const std::shared_ptr<Communicator>&)>& connected) {
  // Whoever waits is ended with the names of the absent first: see Site::verdict.
  constexpr std::chrono::seconds kLater{10};
  const auto later = options.timeout + kLater;
  const auto job_store = std::make_shared<PrefixStore>(store, "job/");
  const auto rank = static_cast<int>(index);
  const auto size = static_cast<int>(options.replicas);
  const auto communicator =
      options.backend == Backend::gloo
          ? connect_gloo(job_store, rank, size,
                         {.timeout = later, .connect_timeout = options.timeout})
          : connect_shared(memory, job_store, rank, size,
                           {.timeout = later, .connect_timeout = options.timeout});
  connected(communicator);
  const std::int64_t threads = math_threads(options.threads_per_replica, options.replicas);
  set_math_threads(threads);
  const JobScope job_scope;
  AxisLevel level{{{options.axis_name, options.replicas}}, index, 0, {}};
  for (int host = 0; host < options.replicas; ++host) level.hosts.push_back(host);
  place = std::make_unique<Environment>(
      std::make_shared<Site>(static_cast<int>(index), communicator, memory->board()),
      std::vector<AxisLevel>{level}, std::make_shared<Fate>(), options.timeout);
  run_as(*place, function);
  // Nobody closes connections that another still needs.
  communicator->barrier();
}

[[noreturn]] void run_as_process(const ReplicaFunction& function, const LaunchOptions& options,
                                 const ReplicaPlace& place) {
  int status = 0;
  Report report;
  // Kept to the end: the launcher takes its closing for this process' end.
  const auto store = std::make_shared<SocketStore>(place.store);
  std::unique_ptr<Environment> environment;
  try {
    if (place.size != options.replicas) {
      throw ValueError(str("launch: the program asked for ", place.size,
                           " replicas, and started anew for ", options.replicas));
    }
    run_replica(function, options, place.index, store,
                std::make_shared<HostMemory>(static_cast<int>(place.size), place.memory),
                environment, [](const auto&) {});
    report.done = true;
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    report.type = ours != nullptr ? ours->type() : "an exception";
    report.message = text_of(error);
    status = exit_status(error);
  } catch (...) {
    report.type = "an exception";
    report.message = "no std::exception";
    status = 1;
  }
  std::cout.flush();
  std::fflush(nullptr);
  send_report(place.report, report);
  // Destructors of statics are the launcher's: a forked child must not run them a second time.
  ::_exit(status);
}

int launch_processes(const ReplicaFunction& function, const LaunchOptions& options,
                     std::int64_t call) {
  if (const auto place = inherited_place(call)) run_as_process(function, options, *place);
  announce(options);
  const Descriptor memory(HostMemory::make_memory(static_cast<int>(options.replicas)));
  std::vector<ReplicaProcess> replicas;
  try {
    for (std::int64_t index = 0; index < options.replicas; ++index) {
      replicas.push_back(start_replica(
          index, options.replicas, call, memory.get(), replicas,
          [&](const ReplicaPlace& place) { run_as_process(function, options, place); }));
    }
  } catch (...) {
    for (const ReplicaProcess& started : replicas) {
      ::kill(started.pid, SIGKILL);
      ::waitpid(started.pid, nullptr, 0);
    }
    throw;
  }
  return supervise(std::move(replicas));
}

[[noreturn]] void stop_threads(int signal) {
  // Progress may stand on the terminal in the middle of a line.
  const char* message = signal == SIGINT ? "\nlockstep: error: stopped by Ctrl-C\n"
                                         : "\nlockstep: error: stopped by SIGTERM\n";
  if (::isatty(STDERR_FILENO) != 1) ++message;
  (void)!::write(STDERR_FILENO, message, std::strlen(message));
  ::_exit(128 + signal);
}

// While replicas run as threads, a signal ends the program at once with the documented status.
class ExitOnSignal {
 public:
  ExitOnSignal()
      : interrupt_(std::signal(SIGINT, stop_threads)),
        terminate_(std::signal(SIGTERM, stop_threads)) {
    if (interrupt_ == SIG_IGN) std::signal(SIGINT, SIG_IGN);  // as the caller wants it
    if (terminate_ == SIG_IGN) std::signal(SIGTERM, SIG_IGN);
  }
  ~ExitOnSignal() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGTERM, terminate_);
  }
  ExitOnSignal(const ExitOnSignal&) = delete;
  ExitOnSignal& operator=(const ExitOnSignal&) = delete;

 private:
  void (*interrupt_)(int);
  void (*terminate_)(int);
};

// A thread cannot be ended from outside: what still runs this long after a failure, outside of any
// collective, ends with the program.
constexpr std::chrono::milliseconds kThreadGrace{1500};

int launch_threads(const ReplicaFunction& function, const LaunchOptions& options) {
  announce(options);
  const ExitOnSignal exit_on_signal;
  const auto store = std::make_shared<MemoryStore>();
  const auto size = static_cast<int>(options.replicas);
  const Descriptor descriptor(HostMemory::make_memory(size));
  const auto memory = std::make_shared<HostMemory>(size, descriptor.get());
  std::vector<std::unique_ptr<Environment>> places(static_cast<std::size_t>(options.replicas));
  std::mutex mutex;  // guards communicators
  std::vector<std::shared_ptr<Communicator>> communicators;
  FirstFailure failure(0, [&](const std::string& reason) {
    const std::lock_guard lock(mutex);
    store->abort(reason);
    for (const auto& communicator : communicators) communicator->abort(reason);
  });
  std::int64_t running = options.replicas;
  std::condition_variable changed;
  const auto connected = [&](const std::shared_ptr<Communicator>& communicator) {
    {
      const std::lock_guard lock(mutex);
      communicators.push_back(communicator);
    }
    if (failure.happened()) communicator->abort("another replica failed");
  };
  std::vector<std::thread> threads = start_threads(
      options.replicas, failure,
      [&](std::int64_t index) {
        run_replica(function, options, index, store, memory,
                    places[static_cast<std::size_t>(index)], connected);
      },
      [&] {
        const std::lock_guard lock(mutex);
        --running;
        changed.notify_all();
      });
  bool all_ended = true;
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running == 0 || failure.happened(); });
    all_ended = changed.wait_for(lock, kThreadGrace, [&] { return running == 0; });
  }
  int status = 0;
  try {
    failure.rethrow();
  } catch (const Error& error) {
    std::cout.flush();
    std::fflush(stdout);
    log_error(str(error.type(), ": ", error.what()));
    status = exit_status(error);
  }
  if (!all_ended) ::_exit(status);
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace

int launch(const std::function<void()>& replica, const LaunchOptions& options) {
  check_options(options);
  prepare_process();
  if (current_environment() != nullptr) {
    throw ValueError("launch: called inside a replica");
  }
  // Refused calls do not count: those inside replicas are not made again by a program started anew.
  static std::atomic<std::int64_t> calls{0};
  const std::int64_t call = calls++;
  if (started_for_later_call(call)) return 0;
  return options.mode == LaunchMode::processes ? launch_processes(replica, options, call)
                                               : launch_threads(replica, options);
}

}  // namespace lockstep
