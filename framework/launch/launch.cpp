#include "framework/launch/launch.h"

#include <vector>

#include "framework/axes/environment.h"
#include "framework/base/logging.h"
#include "framework/base/mutex.h"
#include "framework/base/process.h"
#include "framework/base/text.h"
#include "framework/comm/link_speed.h"
#include "framework/launch/job_failure.h"
#include "framework/launch/process_memory.h"
#include "framework/launch/stop_signals.h"
#include "framework/launch/worker.h"
#include "framework/launch/worker_process.h"
#include "framework/maps/first_failure.h"
#include "framework/maps/kept_threads.h"
#include "framework/maps/machine.h"
#include "framework/maps/tensor_memory.h"
#include "framework/tree/error_place.h"

namespace lockstep {
namespace {

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
  require(options.restart_delay.count() >= 0 && options.restart_delay <= launcher::kLongestDelay,
          "launch: restart_delay is ", options.restart_delay.count(), " ms; it must be from 0 to ",
          launcher::kLongestDelay.count());
  const HostOptions& hosts = options.hosts;
  require(hosts.count >= 1, "launch: hosts.count is ", hosts.count, "; it must be at least 1");
  require(hosts.rank >= 0 && hosts.rank < hosts.count, "launch: hosts.rank is ", hosts.rank,
          "; it must be from 0 to ", hosts.count - 1);
  if (hosts.link != "auto") (void)comm::LinkSpeed::parse(hosts.link);
  if (hosts.count == 1) return;
  require(hosts.meet_timeout.count() > 0, "launch: hosts.meet_timeout is ",
          hosts.meet_timeout.count(), " ms; it must be positive");
  require(!hosts.rendezvous.empty(), "launch: ", hosts.count,
          " hosts need a rendezvous, HOST:PORT");
  const std::int64_t workers = options.workers == 0 ? options.replicas : options.workers;
  require(workers >= hosts.count, "launch: ", hosts.count, " hosts need at least ", hosts.count,
          " replicas and workers, one on each; there are ", options.replicas, " and ", workers);
  require(hosts.replicas >= 0 && hosts.replicas <= options.replicas, "launch: hosts.replicas is ",
          hosts.replicas, " of ", options.replicas, "; it must be from 1 to that, or 0");
  require(options.mode == LaunchMode::processes,
          "launch: several hosts need processes, not threads");
  require(options.backend == Backend::automatic,
          "launch: several hosts need the backend auto: Gloo's ports can't keep strangers out");
}

// Calls the option of that name, if it is set, and logs its error.
void call_logged(const char* name, const auto& option, const auto& argument) {
  if (!option) return;
  const auto thrown = thrown_by([&] { option(argument); });
  if (thrown) log_warning(str(name, ": ", maps::typed_text(thrown)));
}

}  // namespace

void launcher::announce(const LaunchOptions& options, const JobPlan& plan) {
  const maps::Blas library = maps::blas();
  const char* const one = options.mode == LaunchMode::threads ? "a thread" : "a process";
  const char* const how = options.workers == 1 ? one : name_of(options.mode);
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
               ", ", counted(plan.math_threads, "math thread"), " each; ", maps::libtorch_version(),
               ", ", library.name,
               plan.network ? str("; this host's address is ", plan.network->address) : ""));
  if (!library.warning.empty()) log_warning(library.warning);
}

void launcher::tell_failure(const JobFailure& failure, const LaunchOptions& options) {
  call_logged("after_failure", options.after_failure, failure);
}

void launcher::tell_stall(const std::string& warning, const LaunchOptions& options) {
  log_warning(warning);
  call_logged("after_stall", options.after_stall, warning);
}

bool stop_requested() noexcept {
  const Word* const signal = launcher::own_job.asked_by;
  return signal != nullptr && signal->load() != 0;
}

bool is_relaunched() {
  return launcher::inherited_place().has_value();
}

std::int64_t launch_host() noexcept {
  return launcher::own_job.host;
}

std::int64_t launch_restarts() noexcept {
  return launcher::own_job.restarts;
}

int launch(const std::function<void()>& replica, const LaunchOptions& options,
           std::source_location where) {
  check_options(options);
  prepare_process();
  maps::TensorMemory::prepare();
  require(current_environment() == nullptr, "launch: called inside a replica");
  if (refusal_here != nullptr) throw_refused("launch");
  // A process has one handler for Ctrl-C, and a program that starts anew needs one order of calls.
  static Mutex under_way;  // guards calls
  const std::unique_lock only_one(under_way, std::try_to_lock);
  require(only_one.owns_lock(),
          "launch: another thread of this program is in it; a process runs one job at a time");
  // Refused calls do not count: a program started anew does not repeat calls inside replicas.
  static std::int64_t calls = 0;
  const launcher::LaunchCall call{calls++, place_of(where)};
  const auto& inherited = launcher::inherited_place();
  if (inherited && inherited->call.number > call.number) return 0;
  maps::end_kept_threads();  // a process with threads can't be forked
  LaunchOptions complete = options;
  if (complete.workers == 0) complete.workers = complete.replicas;
  launcher::prepare_memory(complete);
  launcher::UnreadOutput output(options.mode == LaunchMode::processes);
  try {
    return output.status = options.mode == LaunchMode::processes
                               ? launcher::launch_processes(replica, complete, call)
                               : launcher::launch_threads(replica, complete);
  } catch (const launcher::Stopped& stopped) {  // while hosts met
    launcher::leave_progress_line();
    log_error(stopped.what());
    return output.status = launcher::status_of_stop(stopped.signal());
  }
}

}  // namespace lockstep
